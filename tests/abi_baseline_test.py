"""The ABI only grows: against the baseline of tests/abi (the last release's; `make abi-baseline` writes it) functions and
enumerators may be added and sized structures may grow at their end; whatever is changed or removed fails."""
import os
import pathlib
import shutil
import subprocess
import xml.etree.ElementTree

import pytest

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
ABI = SOURCE / "tests/abi"
HEADER = (SOURCE / "include/aiacc/aiacc.h").read_text()
pytestmark = pytest.mark.skipif(shutil.which("abidiff") is None or shutil.which("abidw") is None, reason="abigail-tools is not installed")


def dumped(text, folder):
    (folder / "aiacc.h").write_text(text)
    subprocess.run([ABI / "dump", folder / "aiacc.h", folder / "aiacc.abi"], check=True)
    return folder / "aiacc.abi"


def compared(old, new):
    """(is it compatible?, what abidiff says)"""
    diff = subprocess.run(["abidiff", "--suppressions", ABI / "growing.ini", "--no-added-syms", "--drop-private-types", old, new],
                          capture_output=True, text=True)
    assert diff.returncode & 3 == 0, diff.stderr  # 1: abidiff failed, 2: usage
    renamed = [f"{name}: {', '.join(names)} are now {', '.join(members(new).get(name, []))}" for name, names in members(old).items()
               if members(new).get(name, [])[:len(names)] != names]
    return diff.returncode == 0 and not renamed, diff.stdout + "\n".join(renamed)


def members(dump):
    """Of each structure, in their order: abidiff takes another name at the same place for harmless."""
    found = {}
    for structure in xml.etree.ElementTree.parse(dump).getroot().iter("class-decl"):
        if structure.get("is-declaration-only") != "yes":
            found[structure.get("name")] = [member.get("name") for member in structure.iter("var-decl")]
    return found


def test_nothing_is_changed_or_removed(tmp_path):
    compatible, report = compared(ABI / "aiacc.abi", dumped(HEADER, tmp_path))
    assert compatible, report + "\nIf a release may break the ABI, renew the baseline with `make abi-baseline'."


ALLOWED = {
    "a function more": ("AIACC_API aiacc_status_t aiacc_wait(", "AIACC_API aiacc_status_t aiacc_ponder(int a);\nAIACC_API aiacc_status_t aiacc_wait("),
    "a status more": ("  AIACC_ERR_UNREACHABLE = 14,", "  AIACC_ERR_BORED = 16,\n  AIACC_ERR_UNREACHABLE = 14,"),
    "a longer sized structure": ("} aiacc_init_attr_t;", "  int64_t more;\n} aiacc_init_attr_t;"),
    "another comment": ("/* --- life ---", "/* --- birth and death ---"),
}
FORBIDDEN = {
    "a function removed": ("AIACC_API aiacc_status_t aiacc_wait(aiacc_request_t request);", ""),
    "a parameter more": ("aiacc_wait(aiacc_request_t request)", "aiacc_wait(aiacc_request_t request, int how)"),
    "a narrower parameter": ("aiacc_wait_for(aiacc_request_t request, int64_t timeout_ms)", "aiacc_wait_for(aiacc_request_t request, int32_t timeout_ms)"),
    "another result": ("AIACC_API int aiacc_initialized(void)", "AIACC_API int64_t aiacc_initialized(void)"),
    "a status with another number": ("AIACC_ERR_TIMEOUT = 7", "AIACC_ERR_TIMEOUT = 77"),
    "a member in the middle": ("  int32_t world_size_set;", "  int64_t in_between;\n  int32_t world_size_set;"),
    "a member gone": ("  double prescale;", "/* */"),
    "members that changed places": ("  int32_t rank;\n  int32_t world_size;\n", "  int32_t world_size;\n  int32_t rank;\n"),
    "a narrower handle": ("typedef uint64_t aiacc_request_t;", "typedef uint32_t aiacc_request_t;"),
}


@pytest.fixture(scope="module")
def present(tmp_path_factory):
    return dumped(HEADER, tmp_path_factory.mktemp("present"))


def changed(change):
    old, new = change
    assert HEADER.count(old) == 1, f"the header has no longer just one '{old}'"
    return HEADER.replace(old, new)


@pytest.mark.parametrize("what", ALLOWED)
def test_growth_is_allowed(what, present, tmp_path):
    compatible, report = compared(present, dumped(changed(ALLOWED[what]), tmp_path))
    assert compatible, report


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_break_is_found(what, present, tmp_path):
    compatible, _ = compared(present, dumped(changed(FORBIDDEN[what]), tmp_path))
    assert not compatible
