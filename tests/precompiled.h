// What nearly every unit test includes, compiled once (Makefile.am, pch/).
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "base/precompiled.h"
