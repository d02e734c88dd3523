#include "runtime/metrics/metrics.h"

#include <fmt/format.h>

#include <string_view>

namespace aiacc {
namespace {

struct Counter {
  std::string_view name;
  std::uint64_t MetricsSample::*value;
  std::string_view help;
};

constexpr std::array kCounters{
    Counter{"steps", &MetricsSample::steps, "Steps that ended on all ranks."},
    Counter{"rounds", &MetricsSample::rounds, "Rounds of negotiation that this rank took part in."},
    Counter{"negotiation_messages", &MetricsSample::negotiation_messages, "Messages to other hosts in these rounds."},
    Counter{"launches", &MetricsSample::launches, "Allreduces of gradients."},
    Counter{"tensors", &MetricsSample::tensors, "Gradients that were reduced."},
    Counter{"bytes", &MetricsSample::bytes, "Bytes of these gradients, before compression."},
    Counter{"wire_bytes", &MetricsSample::wire_bytes, "The same bytes as they were reduced, after compression."},
    Counter{"packed_bytes", &MetricsSample::packed_bytes,
            "Bytes copied between memory of the program and of the engine."},
    Counter{"schedule_breaks", &MetricsSample::breaks, "Departures from a recorded schedule."},
    Counter{"waits", &MetricsSample::waits, "Waits of the program for all of its gradients."},
};

// A label's value.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char one : text) {
    if (one == '\\' || one == '"') out += '\\';
    out += one == '\n' ? ' ' : one;
  }
  return out;
}

}  // namespace

MetricsSample& MetricsSample::operator+=(const MetricsSample& other) noexcept {
  for (const Counter& counter : kCounters) this->*counter.value += other.*counter.value;
  wait_ns += other.wait_ns;
  for (std::size_t i = 0; i < fused.counts.size(); ++i) fused.counts[i] += other.fused.counts[i];
  fused.count += other.fused.count;
  fused.sum += other.fused.sum;
  return *this;
}

MetricsSample Metrics::sample() const noexcept {
  MetricsSample all = gone_;
  for (const Source* source : sources_) all += source->sample();
  return all;
}

Json metrics_json(const MetricsOwner& owner, const Metrics& metrics) {
  const MetricsSample sample = metrics.sample();
  Json::Object gradient{{"engines", metrics.engines()}};
  for (const Counter& counter : kCounters) gradient.emplace_back(counter.name, sample.*counter.value);
  gradient.emplace_back("wait_seconds", static_cast<double>(sample.wait_ns) / 1e9);
  Json::Array buckets;
  for (std::size_t i = 0; i < sample.fused.counts.size(); ++i) {
    if (sample.fused.counts[i] == 0) continue;
    buckets.push_back(Json::Object{{"most_bytes", std::uint64_t{1} << (SizeHistogram::kSmallest + i)},
                                   {"count", sample.fused.counts[i]}});
  }
  gradient.emplace_back(
      "fused_bytes",
      Json::Object{{"count", sample.fused.count}, {"sum", sample.fused.sum}, {"buckets", std::move(buckets)}});
  return Json::Object{
      {"rank", owner.rank}, {"size", owner.size}, {"host", owner.host}, {"gradient", std::move(gradient)}};
}

std::string metrics_text(const MetricsOwner& owner, const Metrics& metrics) {
  const MetricsSample sample = metrics.sample();
  const std::string labels = fmt::format(R"(rank="{}",host="{}")", owner.rank, escaped(owner.host));
  std::string text;
  const auto head = [&text](std::string_view name, std::string_view type, std::string_view help) {
    text += fmt::format("# HELP aiacc_gradient_{0} {2}\n# TYPE aiacc_gradient_{0} {1}\n", name, type, help);
  };
  for (const Counter& counter : kCounters) {
    const std::string name = fmt::format("{}_total", counter.name);
    head(name, "counter", counter.help);
    text += fmt::format("aiacc_gradient_{}{{{}}} {}\n", name, labels, sample.*counter.value);
  }
  head("wait_seconds_total", "counter", "How long these waits took together.");
  text += fmt::format("aiacc_gradient_wait_seconds_total{{{}}} {:.9f}\n", labels,
                      static_cast<double>(sample.wait_ns) / 1e9);
  head("engines", "gauge", "Gradient engines that exist.");
  text += fmt::format("aiacc_gradient_engines{{{}}} {}\n", labels, metrics.engines());
  head("fused_bytes", "histogram", "Bytes of gradients that were reduced together.");
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < sample.fused.counts.size(); ++i) {
    below += sample.fused.counts[i];
    text += fmt::format("aiacc_gradient_fused_bytes_bucket{{{},le=\"{}\"}} {}\n", labels,
                        std::uint64_t{1} << (SizeHistogram::kSmallest + i), below);
  }
  text += fmt::format("aiacc_gradient_fused_bytes_bucket{{{},le=\"+Inf\"}} {}\n", labels, sample.fused.count);
  text += fmt::format("aiacc_gradient_fused_bytes_sum{{{0}}} {1}\naiacc_gradient_fused_bytes_count{{{0}}} {2}\n",
                      labels, sample.fused.sum, sample.fused.count);
  return text;
}

}  // namespace aiacc
