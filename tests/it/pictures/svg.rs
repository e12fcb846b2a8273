//! Draws runs under each other over one axis of time.
//!
//! The colours are of middle brightness, so that they can be told from a white page and from a black one, and no difference is a matter of
//! colour alone.

use std::fmt::Write;
use std::time::Duration;

use tollgate::clock::{Nanos, SECOND};
use tollgate::limit::Algorithm;

use super::simulation::{END, PERIOD, Request, Run};

/// A whole picture.
pub(super) fn draw(title: &str, rows: &[(&str, &Run)]) -> String {
    let mut drawing = Drawing { body: String::new(), y: TOP };
    for (heading, run) in rows {
        drawing.row(heading, run);
    }
    drawing.axis();
    let delays = rows.iter().any(|(_, run)| delays(run));
    let windows = rows.iter().any(|(_, run)| has_windows(run));
    drawing.legend(delays, windows);
    let (height, body) = (drawing.y, drawing.body);
    let described = rows.iter().map(|(heading, run)| format!("{heading}: {}", summary(run))).collect::<Vec<_>>().join("; ");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-labelledby=\"title desc\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\" font-size=\"12\">\n\
         <title id=\"title\">{title}</title>\n\
         <desc id=\"desc\">A burst of 8 requests, one a second for 14 s, and 10 requests around the thirtieth second. {described}.</desc>\n\
         {body}</svg>\n"
    )
}

fn summary(run: &Run) -> String {
    let (admitted, all, most) = (run.admitted(), run.requests.len(), run.most_in_a_period());
    let verb = if delays(run) { "go on" } else { "pass" };
    format!("{admitted} of {all} {verb}, {most} in the fullest 10 s")
}

fn delays(run: &Run) -> bool {
    run.requests.iter().any(|request| request.goes_on.is_some_and(|at| at > request.at))
}

fn has_windows(run: &Run) -> bool {
    matches!(run.algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow)
}

struct Drawing {
    body: String,
    /// Where the next thing goes.
    y: f64,
}

impl Drawing {
    fn row(&mut self, heading: &str, run: &Run) {
        self.y += 16.0;
        self.text(LEFT, self.y, "start", &format!(" fill=\"{TEXT}\" font-weight=\"bold\""), heading);
        self.text(x(END), self.y, "end", &format!(" fill=\"{TEXT}\""), &summary(run));
        let top = self.y + 8.0;
        self.y = top + 10.0;
        let requests = self.y;
        self.label("requests", requests);
        if delays(run) {
            self.y += 26.0;
            self.label("go on", self.y);
        }
        let goes_on = self.y;
        let full = self.y + 14.0;
        self.y = full + CELL * lines(run.limit);
        self.edges(run, top, self.y);
        for request in &run.requests {
            self.request(request, requests, goes_on);
        }
        self.left(run, full, self.y);
        self.y += 12.0;
    }

    /// Where windows begin, or merely every ten seconds.
    fn edges(&mut self, run: &Run, top: f64, bottom: f64) {
        let style = if has_windows(run) { "stroke-dasharray=\"5 3\"" } else { "stroke-opacity=\".35\"" };
        for edge in (PERIOD..END).step_by(usize::try_from(PERIOD).unwrap()) {
            let x = x(edge);
            self.put(&format!(
                "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"{TEXT}\" {style}/>"
            ));
        }
    }

    fn request(&mut self, request: &Request, y: f64, goes_on_y: f64) {
        let from = x(request.at);
        match request.goes_on {
            None => self.cross(from, y),
            Some(_) if y == goes_on_y => self.dot(from, y),
            Some(at) => {
                self.ring(from, y);
                self.arrow((from, y + RADIUS), (x(at), goes_on_y - RADIUS));
                self.dot(x(at), goes_on_y);
            }
        }
    }

    /// The steps of what is left, between its most and nothing.
    fn left(&mut self, run: &Run, full: f64, empty: f64) {
        for (cells, y) in [(run.limit, full), (0, empty)] {
            self.text(LEFT - 8.0, y + 4.0, "end", &format!(" fill=\"{TEXT}\" font-size=\"10\""), &cells.to_string());
        }
        let left = if delays(run) { "places" } else { "left" };
        self.label_at(left, (full + empty) / 2.0, LEFT - 24.0);
        let mut steps = String::new();
        for (at, left) in &run.left {
            let y = empty - CELL * lines(*left);
            let _ = write!(steps, "{}{:.1} V{y:.1} ", if steps.is_empty() { "M" } else { "H" }, x(*at));
        }
        let steps = steps.replacen(" V", ",", 1);
        let end = x(END);
        self.put(&format!("<path d=\"{steps}H{end:.1} V{empty:.1} H{LEFT:.1} Z\" fill=\"{LINE}\" fill-opacity=\".15\"/>"));
        self.put(&format!("<path d=\"{steps}H{end:.1}\" fill=\"none\" stroke=\"{LINE}\" stroke-width=\"1.6\"/>"));
        self.put(&format!("<line x1=\"{LEFT:.1}\" y1=\"{empty:.1}\" x2=\"{end:.1}\" y2=\"{empty:.1}\" stroke=\"{TEXT}\"/>"));
    }

    fn axis(&mut self) {
        self.y += 4.0;
        for at in (0..END).step_by(usize::try_from(PERIOD).unwrap()) {
            self.text(x(at), self.y, "middle", &format!(" fill=\"{TEXT}\" font-size=\"10\""), &format!("{} s", at / SECOND));
        }
        self.y += 22.0;
    }

    fn legend(&mut self, delays: bool, windows: bool) {
        let y = self.y;
        let mut at = LEFT + 4.0;
        let mut say = |drawing: &mut Self, words: &str, width: f64| {
            drawing.text(at + 10.0, y + 4.0, "start", &format!(" fill=\"{TEXT}\""), words);
            at += width;
            at - width
        };
        let place = say(self, if delays { "goes on" } else { "passes" }, 74.0);
        self.dot(place, y);
        let place = say(self, "is refused", 92.0);
        self.cross(place, y);
        if delays {
            let place = say(self, "arrives, and waits for its place", 206.0);
            self.ring(place, y);
        }
        let place = say(self, if delays { "cells or places left" } else { "cells left" }, if delays { 148.0 } else { 92.0 });
        self.put(&format!("<path d=\"M{:.1},{y:.1} h12\" stroke=\"{LINE}\" stroke-width=\"1.6\"/>", place - 6.0));
        if windows {
            let place = say(self, "edge of a window", 130.0);
            self.put(&format!("<path d=\"M{place:.1},{:.1} v14\" stroke=\"{TEXT}\" stroke-dasharray=\"5 3\"/>", y - 7.0));
        }
        self.y += 14.0;
    }

    fn dot(&mut self, x: f64, y: f64) {
        self.put(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\" fill=\"{PASSES}\"/>"));
    }

    fn ring(&mut self, x: f64, y: f64) {
        self.put(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"none\" stroke=\"{WAITS}\" stroke-width=\"1.3\"/>",
            RADIUS - 0.5
        ));
    }

    fn cross(&mut self, x: f64, y: f64) {
        let (left, right, top, bottom) = (x - CROSS, x + CROSS, y - CROSS, y + CROSS);
        self.put(&format!(
            "<path d=\"M{left:.1},{top:.1} L{right:.1},{bottom:.1} M{left:.1},{bottom:.1} L{right:.1},{top:.1}\" \
             stroke=\"{REFUSED}\" stroke-width=\"1.5\"/>"
        ));
    }

    fn arrow(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let length = (x2 - x1).hypot(y2 - y1);
        let (along_x, along_y) = ((x2 - x1) / length * 5.0, (y2 - y1) / length * 5.0);
        let (wing_x, wing_y) = (along_y * 0.5, -along_x * 0.5);
        let (back_x, back_y) = (x2 - along_x, y2 - along_y);
        self.put(&format!(
            "<path d=\"M{x1:.1},{y1:.1} L{x2:.1},{y2:.1} M{:.1},{:.1} L{x2:.1},{y2:.1} L{:.1},{:.1}\" fill=\"none\" stroke=\"{WAITS}\" \
             stroke-width=\"1.1\"/>",
            back_x + wing_x,
            back_y + wing_y,
            back_x - wing_x,
            back_y - wing_y
        ));
    }

    fn label(&mut self, words: &str, y: f64) {
        self.label_at(words, y, LEFT - 8.0);
    }

    fn label_at(&mut self, words: &str, y: f64, x: f64) {
        self.text(x, y + 4.0, "end", &format!(" fill=\"{TEXT}\""), words);
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, style: &str, words: &str) {
        self.put(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{style}>{words}</text>"));
    }

    fn put(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }
}

fn x(at: Nanos) -> f64 {
    LEFT + Duration::from_nanos(at).as_secs_f64() * PIXELS_PER_SECOND
}

/// A few cells, as a number to draw with.
fn lines(cells: u64) -> f64 {
    f64::from(u32::try_from(cells).unwrap())
}

const WIDTH: u32 = 800;
const TOP: f64 = 2.0;
const LEFT: f64 = 84.0;
const PIXELS_PER_SECOND: f64 = 19.6;
/// The height of a cell.
const CELL: f64 = 9.0;
const RADIUS: f64 = 2.7;
const CROSS: f64 = 2.5;
const TEXT: &str = "#6e7781";
const PASSES: &str = "#1f9d68";
const REFUSED: &str = "#d1495b";
const WAITS: &str = "#b87a14";
const LINE: &str = "#3f86d6";
