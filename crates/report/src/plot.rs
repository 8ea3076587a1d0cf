//! Points in, one inline SVG out: axes from zero, few grid lines, no script.
//!
//! Colors come from the page's style sheet by class, so that light and dark both work.

use std::fmt::Write as _;

use crate::escape::escape;
use crate::number::short;

/// One plot.
#[derive(Debug, Clone)]
pub struct Plot {
    /// What is shown.
    pub title: String,
    /// How to read it, such as `lower is better`.
    pub hint: String,
    /// Below the horizontal axis, unit included.
    pub x_label: String,
    /// At the top of the vertical axis, unit included.
    pub y_label: String,
    /// Largest value of the vertical axis; from the points if absent.
    pub y_max: Option<f64>,
    /// Lets the horizontal axis begin near the first point: for curves, where only shapes and
    /// places matter. Everything else begins at zero.
    pub x_from_data: bool,
    /// What is drawn.
    pub series: Vec<PlotSeries>,
    /// Horizontal lines, each with its name.
    pub limits: Vec<(String, f64)>,
}

/// One set of points.
#[derive(Debug, Clone)]
pub struct PlotSeries {
    /// Name in the legend; none if empty.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// The points, x ascending for lines and steps.
    pub points: Vec<(f64, f64)>,
}

/// How points are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Joined by straight lines.
    Line,
    /// Each on its own.
    Dots,
    /// Filled columns from the horizontal axis, each as wide as the step to the next point.
    Columns,
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 38.0;

/// Draws a plot; an empty text if there is not a single finite point.
#[must_use]
pub fn svg(plot: &Plot) -> String {
    let Some(scale) = Scale::of(plot) else {
        return String::new();
    };
    let mut out = String::new();
    let label = escape(&plot.title);
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">"
    );
    draw_grid(&mut out, &scale);
    for (place, series) in plot.series.iter().enumerate() {
        draw_series(&mut out, series, place, &scale);
    }
    for (name, value) in &plot.limits {
        draw_limit(&mut out, name, *value, &scale);
    }
    let (x, y) = (WIDTH - RIGHT, HEIGHT - 6.0);
    let x_label = escape(&plot.x_label);
    let _ = write!(
        out,
        "<text class=\"axis end\" x=\"{x}\" y=\"{y}\">{x_label}</text>"
    );
    let y_label = escape(&plot.y_label);
    let _ = write!(
        out,
        "<text class=\"axis\" x=\"4\" y=\"13\">{y_label}</text>"
    );
    out.push_str("</svg>");
    out
}

/// A plot with its heading and legend, as the page shows it.
#[must_use]
pub fn figure(plot: &Plot) -> String {
    let drawing = svg(plot);
    if drawing.is_empty() {
        return String::new();
    }
    let mut legend = String::new();
    for (place, series) in plot
        .series
        .iter()
        .enumerate()
        .filter(|(_, s)| !s.name.is_empty())
    {
        let name = escape(&series.name);
        let _ = write!(legend, "<span class=\"key s{place}\">{name}</span>");
    }
    format!(
        "<figure><figcaption><b>{}</b> <span class=\"hint\">{}</span>{legend}</figcaption>\
         {drawing}</figure>",
        escape(&plot.title),
        escape(&plot.hint)
    )
}

/// From data to the drawing's own units.
struct Scale {
    x_min: f64,
    x_max: f64,
    y_max: f64,
    x_step: f64,
    y_step: f64,
}

impl Scale {
    fn of(plot: &Plot) -> Option<Self> {
        let points = || {
            let all = plot.series.iter().flat_map(|series| &series.points);
            all.filter(|(x, y)| x.is_finite() && y.is_finite())
        };
        let largest = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
        let x_max = largest(&mut points().map(|(x, _)| *x))?;
        let y_points = largest(&mut points().map(|(_, y)| *y))?;
        let limits = plot
            .limits
            .iter()
            .map(|(_, value)| *value)
            .filter(|v| v.is_finite());
        // A limit far above the points would squeeze them into a line at the bottom.
        let y_limits = limits
            .filter(|limit| *limit <= y_points * 4.0)
            .fold(0.0, f64::max);
        let x_least = points().map(|(x, _)| *x).fold(x_max, f64::min);
        let from_data = plot.x_from_data && x_least > x_max * 0.4;
        let x_step = nice_step(if from_data { x_max - x_least } else { x_max }, 6.0);
        let x_min = if from_data {
            (x_least / x_step).floor() * x_step
        } else {
            0.0
        };
        let y_wanted = plot.y_max.unwrap_or(y_points.max(y_limits));
        let y_step = nice_step(y_wanted, 4.0);
        let to_step = |value: f64, step: f64| (value / step - 1e-9).ceil().max(1.0) * step;
        Some(Self {
            x_min,
            x_max: if x_max > x_min { x_max } else { x_min + 1.0 },
            y_max: to_step(y_wanted, y_step),
            x_step,
            y_step,
        })
    }

    fn x(&self, value: f64) -> f64 {
        let share = (value - self.x_min) / (self.x_max - self.x_min);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value / self.y_max).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// The step of 1, 2 or 5 times a power of ten that cuts `max` into about `n` pieces.
///
/// Example: 930 into 4 → 232.5 → 200. Zero and below give 1.
fn nice_step(max: f64, n: f64) -> f64 {
    if max.is_nan() || max <= 0.0 {
        return 1.0;
    }
    let rough = max / n;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let nearest = steps.into_iter().min_by(|a, b| {
        let off = |step: f64| (step * power / rough).ln().abs();
        off(*a).total_cmp(&off(*b))
    });
    nearest.unwrap_or(1.0) * power
}

fn draw_grid(out: &mut String, scale: &Scale) {
    let (left, right, bottom) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
    for i in 0..=steps(scale.y_max, scale.y_step) {
        let value = i as f64 * scale.y_step;
        let y = scale.y(value);
        let (text_x, text_y) = (LEFT - 6.0, y + 4.0);
        let _ = write!(
            out,
            "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>\
             <text class=\"tick end\" x=\"{text_x}\" y=\"{text_y:.1}\">{}</text>",
            tick(value, scale.y_step)
        );
    }
    for i in 0..=steps(scale.x_max - scale.x_min, scale.x_step) {
        let value = scale.x_min + i as f64 * scale.x_step;
        let (x, text_y) = (scale.x(value), bottom + 15.0);
        let _ = write!(
            out,
            "<text class=\"tick mid\" x=\"{x:.1}\" y=\"{text_y}\">{}</text>",
            tick(value, scale.x_step)
        );
    }
}

/// Whole steps up to `max`; never more than a plot can show.
fn steps(max: f64, step: f64) -> usize {
    ((max / step + 1e-9).floor() as usize).min(20)
}

/// As many decimals as the step needs.
fn tick(value: f64, step: f64) -> String {
    let decimals = usize::try_from((-step.log10().floor()).clamp(0.0, 6.0) as i64).unwrap_or(0);
    format!("{value:.decimals$}")
}

fn draw_series(out: &mut String, series: &PlotSeries, place: usize, scale: &Scale) {
    let points: Vec<(f64, f64)> = series
        .points
        .iter()
        .copied()
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .collect();
    match series.mark {
        Mark::Line => {
            let mut path = String::new();
            for (i, (x, y)) in points.iter().enumerate() {
                let command = if i == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{command}{:.1} {:.1}", scale.x(*x), scale.y(*y));
            }
            let _ = write!(out, "<path class=\"line s{place}\" d=\"{path}\"/>");
        }
        Mark::Dots => {
            // One path of zero-length strokes: a fraction of the bytes of as many circles.
            let mut path = String::new();
            for (x, y) in &points {
                let _ = write!(path, "M{:.1} {:.1}h0", scale.x(*x), scale.y(*y));
            }
            let _ = write!(out, "<path class=\"dots s{place}\" d=\"{path}\"/>");
        }
        Mark::Columns => {
            let width = points.get(1).map_or(1.0, |next| next.0 - points[0].0);
            let bottom = HEIGHT - BOTTOM;
            let mut path = String::new();
            for (x, y) in &points {
                let (from, to, top) = (scale.x(*x), scale.x(x + width), scale.y(*y));
                let _ = write!(path, "M{from:.1} {bottom}V{top:.1}H{to:.1}V{bottom}Z");
            }
            let _ = write!(out, "<path class=\"columns s{place}\" d=\"{path}\"/>");
        }
    }
}

fn draw_limit(out: &mut String, name: &str, value: f64, scale: &Scale) {
    if !(value > 0.0 && value <= scale.y_max) {
        return;
    }
    let (y, left, right) = (scale.y(value), LEFT, WIDTH - RIGHT);
    let (text_y, text) = (y - 4.0, escape(&format!("{name} {}", short(value))));
    let _ = write!(
        out,
        "<path class=\"limit\" d=\"M{left} {y:.1}H{right}\"/>\
         <text class=\"limit end\" x=\"{right}\" y=\"{text_y:.1}\">{text}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> Plot {
        Plot {
            title: "<t>".to_owned(),
            hint: String::new(),
            x_label: "s".to_owned(),
            y_label: "ms".to_owned(),
            y_max: None,
            x_from_data: false,
            series: vec![PlotSeries {
                name: "a&b".to_owned(),
                mark: Mark::Line,
                points,
            }],
            limits: vec![("limit".to_owned(), 12.0)],
        }
    }

    #[test]
    fn steps_are_nice() {
        for (max, n, step) in [
            (930.0, 4.0, 200.0),
            (1.0, 4.0, 0.2),
            (7.0, 6.0, 1.0),
            (0.0, 4.0, 1.0),
        ] {
            assert!((nice_step(max, n) - step).abs() < 1e-12, "{max} {n}");
        }
    }

    #[test]
    fn points_land_between_the_axes() {
        let drawn = svg(&plot(vec![(0.0, 0.0), (10.0, 10.0)]));
        // From the origin to the right edge; 12, the limit, needs an axis up to 15 in steps of 5
        // or to 12 in steps of 2: the top point is below the frame's top either way.
        assert!(drawn.contains("M52.0 212.0L546.0"), "{drawn}");
        assert!(drawn.contains("limit 12.0"), "{drawn}");
    }

    #[test]
    fn texts_are_escaped_and_broken_points_are_left_out() {
        let drawn = figure(&plot(vec![
            (0.0, 1.0),
            (f64::NAN, 2.0),
            (1.0, f64::INFINITY),
        ]));
        assert!(
            drawn.contains("&lt;t&gt;") && drawn.contains("a&amp;b"),
            "{drawn}"
        );
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        assert_eq!(figure(&plot(vec![(f64::NAN, 1.0)])), "");
    }
}
