#include "tools/perf/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/quantity.h"
#include "tools/perf/types.h"

namespace aiacc::tools {

namespace {

constexpr double kHeight = 480;  // more if the legend needs it
constexpr double kLeft = 70;
constexpr double kTop = 50;
constexpr double kRight = 610;  // the right end of the axes; the legend is beside them
constexpr double kBottom = 425;
constexpr double kLegend = kRight + 58;  // where the legend's names begin
constexpr double kLegendStep = 20;

// The colours of Okabe and Ito, which most colour-blind readers can distinguish, and two more. The in-place and
// out-of-place lines of a collective share one.
constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
                                 "#56b4e9", "#000000", "#8a6d3b", "#7b3294", "#999999"};

struct Series {
  std::string what;
  bool in_place = false;
  std::size_t colour = 0;
  std::vector<const Row*> rows;
  std::string name() const { return what + (in_place ? ", in place" : ""); }
};

std::string what_of(const Row& row, bool several_types, bool several_ops) {
  std::string name(row.collective->name);
  if (several_types) name += fmt::format(" {}", name_of(row.type));
  if (several_ops && row.collective->reduces) name += fmt::format(" {}", name_of(row.op));
  return name;
}

// A logarithmic axis cannot show 0, which is the bus bandwidth of one rank for most collectives.
bool can_be_drawn(const Row& row) { return row.count > 0 && row.bus_gbs > 0; }

std::vector<Series> series_of(const std::vector<Row>& rows) {
  const auto differs = [&](auto member) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.*member != rows.front().*member; });
  };
  const bool types = differs(&Row::type);
  const bool ops = differs(&Row::op);
  std::vector<Series> all;
  std::size_t colours = 0;
  for (const Row& row : rows) {
    if (!can_be_drawn(row)) continue;
    const std::string what = what_of(row, types, ops);
    const auto is_it = [&](const Series& one) { return one.what == what && one.in_place == row.in_place; };
    auto found = std::find_if(all.begin(), all.end(), is_it);
    if (found == all.end()) {
      const auto other = std::find_if(all.begin(), all.end(), [&](const Series& one) { return one.what == what; });
      const std::size_t colour = other == all.end() ? colours++ : other->colour;
      found = all.insert(all.end(), Series{what, row.in_place, colour, {}});
    }
    found->rows.push_back(&row);
  }
  return all;
}

// The logarithms of the lowest and the highest value, at least one step apart.
struct Range {
  double low = 1e300;
  double high = -1e300;
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double part(double value) const { return (value - low) / (high - low); }
};

class Picture {
 public:
  explicit Picture(const std::vector<Series>& all) {
    for (const Series& series : all) {
      for (const Row* row : series.rows) {
        sizes_.include(std::log2(static_cast<double>(row->bytes)));
        rates_.include(std::log10(row->bus_gbs));
      }
    }
    sizes_ = {std::floor(sizes_.low), std::ceil(sizes_.high)};
    if (sizes_.high <= sizes_.low) sizes_ = {sizes_.low - 1, sizes_.low + 1};
    rates_ = {std::floor(rates_.low), std::ceil(rates_.high + 1e-9)};
    if (rates_.high <= rates_.low) rates_.high = rates_.low + 1;
  }

  double x(double bytes) const { return kLeft + sizes_.part(std::log2(bytes)) * (kRight - kLeft); }
  double y(double rate) const { return kBottom - rates_.part(std::log10(rate)) * (kBottom - kTop); }

  std::string grid() const {
    std::string text;
    const int step = std::max(1, static_cast<int>(std::ceil((sizes_.high - sizes_.low) / 10)));
    for (int power = static_cast<int>(std::ceil(sizes_.low)); power <= sizes_.high; power += step) {
      const double at = x(std::exp2(power));
      text += fmt::format(
          "<line x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}' stroke='#ddd'/><text x='{0:.1f}' y='{3}' "
          "text-anchor='middle'>{4}</text>\n",
          at, kTop, kBottom, kBottom + 18, text_of_bytes(std::uint64_t{1} << power));
    }
    for (int power = static_cast<int>(rates_.low); power <= rates_.high; ++power) {
      const double at = y(std::pow(10, power));
      text += fmt::format(
          "<line x1='{0}' y1='{1:.1f}' x2='{2}' y2='{1:.1f}' stroke='#ddd'/><text x='{3}' y='{4:.1f}' "
          "text-anchor='end'>{5:g}</text>\n",
          kLeft, at, kRight, kLeft - 8, at + 4, std::pow(10, power));
    }
    return text;
  }

  std::string line(const Series& series, double legend_y) const {
    const char* colour = kColours[series.colour % kColours.size()];
    std::string points;
    std::string dots;
    for (const Row* row : series.rows) {
      const double at_x = x(static_cast<double>(row->bytes));
      const double at_y = y(row->bus_gbs);
      points += fmt::format("{:.1f},{:.1f} ", at_x, at_y);
      dots +=
          fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='{}'><title>{}, {}: {:.4g} GB/s</title></circle>\n",
                      at_x, at_y, colour, series.name(), text_of_bytes(row->bytes), row->bus_gbs);
    }
    const std::string stroke = fmt::format("fill='none' stroke='{}' stroke-width='2'{}", colour,
                                           series.in_place ? " stroke-dasharray='6 3'" : "");
    return fmt::format("<polyline points='{}' {}/>\n{}", points, stroke, dots) +
           fmt::format("<line x1='{}' y1='{}' x2='{}' y2='{}' {}/><text x='{}' y='{}'>{}</text>\n", kRight + 20,
                       legend_y, kRight + 50, legend_y, stroke, kLegend, legend_y + 4, series.name());
  }

 private:
  Range sizes_;
  Range rates_;
};

}  // namespace

std::string plot_svg(const std::vector<Row>& rows, const std::string& title) {
  const std::vector<Series> all = series_of(rows);
  // A letter of the legend is about 6.5 wide.
  std::size_t longest = 0;
  for (const Series& series : all) longest = std::max(longest, series.name().size());
  const double width = std::max(860.0, kLegend + 10 + 6.5 * static_cast<double>(longest));
  const double height = std::max(kHeight, kTop + 20 + kLegendStep * static_cast<double>(all.size()));
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}' font-family='sans-serif' "
      "font-size='12' fill='#333'>\n<rect width='{0}' height='{1}' fill='white'/>\n"
      "<text x='{2}' y='28' font-size='15'>{3}</text>\n",
      width, height, kLeft, title);
  if (!all.empty()) {
    const Picture picture(all);
    svg += picture.grid();
    double legend_y = kTop + 8;
    for (const Series& series : all) {
      svg += picture.line(series, legend_y);
      legend_y += kLegendStep;
    }
  } else {
    svg += fmt::format("<text x='{}' y='{}' text-anchor='middle'>nothing passes between ranks</text>\n",
                       (kLeft + kRight) / 2, (kTop + kBottom) / 2);
  }
  svg +=
      fmt::format("<text x='{}' y='{}' text-anchor='middle'>size (bytes)</text>\n", (kLeft + kRight) / 2, kBottom + 40);
  svg += fmt::format(
      "<text transform='translate(18 {}) rotate(-90)' text-anchor='middle'>bus bandwidth (GB/s)</text>\n</svg>\n",
      (kTop + kBottom) / 2);
  return svg;
}

}  // namespace aiacc::tools
