//! How many exchanges an upstream does best with: the arithmetic, without time, threads or requests.
//!
//! Below its capacity an upstream answers in a time that does not depend on how much is in flight, the baseline. Beyond it they queue, and the time grows in
//! proportion. So a limit that is reached moves by `tolerance × baseline ÷ latency`: up as long as answers are within what is tolerated, down
//! otherwise, and rests at capacity × tolerance, a short queue that keeps upstream busy.
//!
//! The baseline is never measured by closing the door for a moment, as Envoy's filter does. It is remembered: it follows every window that is faster,
//! and, slowly, those in which there was room. When upstream has become slower rather than busier, the limit is too low and falls; then
//! the rate of answers falls with it, which it does not do in a queue. That is how the two are told apart, and the baseline is then what it takes now.
//!
//! The ideas are those of TCP Vegas, of BBR and of Netflix's concurrency-limits.

/// The bounds of a limit, and how much latency is tolerated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    pub(super) min: f64,
    pub(super) max: f64,
    /// How many times its baseline an answer may take; more than 1.
    pub(super) tolerance: f64,
    /// Whether the limit bounds what is in flight. If not, Little's law says what it would be: rate × tolerance × baseline.
    pub(super) enforced: bool,
}

/// What was seen for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    /// The mean latency, in seconds.
    pub(super) latency: f64,
    /// Answers per second.
    pub(super) rate: f64,
    /// The most that was in flight.
    pub(super) peak: f64,
    /// Whether somebody was shed, or would have been.
    pub(super) shed: bool,
}

/// What is thought of an upstream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    /// How many exchanges may be in flight.
    pub(super) limit: f64,
    /// How long an answer takes without a queue, in seconds; 0 while nobody knows.
    pub(super) baseline: f64,
    /// How long it took in the last window, in seconds.
    pub(super) latency: f64,
    fall: Fall,
    began: bool,
}

/// A limit that falls window after window.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fall {
    None,
    /// For one window, which may be half from before whatever happened.
    Began,
    /// Since a window with this limit, which had this rate. Signs in a row that it is not a queue: one may be chance.
    Since {
        limit: f64,
        rate: f64,
        signs: u8,
    },
}

impl Estimate {
    /// Nothing is known but where to begin.
    pub(super) fn new(limit: f64) -> Self {
        Self { limit, baseline: 0.0, latency: 0.0, fall: Fall::None, began: false }
    }

    /// Takes a window into account.
    pub(super) fn take(&mut self, window: Window, bounds: Bounds) {
        // Of those that were under way when the first window began, it has seen the quick ones only.
        if !std::mem::replace(&mut self.began, true) {
            return;
        }
        self.latency = window.latency;
        let is_full = window.shed || window.peak >= FULL * self.limit;
        self.learn_baseline(&window, is_full);
        let tolerated = bounds.tolerance * self.baseline;
        let target = if bounds.enforced { self.limit * tolerated / window.latency } else { tolerated * window.rate };
        let next = if window.latency > tolerated && (is_full || window.peak >= self.limit / 2.0) {
            if self.is_below_capacity(&window) {
                self.baseline = window.latency;
                self.limit * bounds.tolerance
            } else {
                target
            }
        } else {
            self.rise();
            // An upstream with room says nothing about where its room ends.
            if is_full { target.max(self.limit + 1.0) } else { self.limit }
        };
        let step = next.clamp(self.limit * MOST_DOWN, (self.limit * MOST_UP).max(self.limit + 1.0));
        self.limit = (self.limit + STEP * (step - self.limit)).clamp(bounds.min, bounds.max);
    }

    fn learn_baseline(&mut self, window: &Window, is_full: bool) {
        if self.baseline <= 0.0 || window.latency < MUCH_FASTER * self.baseline {
            // At once: while it lags behind, the limit would grow into a queue, and then nobody would see how fast it is.
            self.baseline = window.latency;
        } else if window.latency < self.baseline {
            self.baseline += FASTER * (window.latency - self.baseline);
        } else if !is_full {
            self.baseline += SLOWER * (window.latency - self.baseline);
        }
    }

    /// Answers are in time. That alone ends no fall, which may be slow and with chance in it: only a limit as high as before does.
    fn rise(&mut self) {
        match self.fall {
            Fall::Since { limit, .. } if self.limit < limit => {}
            _ => self.fall = Fall::None,
        }
    }

    /// Answers take too long. Whether it is not for a queue: the limit has become less, and the rate with it. It is the limit that is looked at
    /// and not what was in flight, in which there is the same chance as in the rate.
    fn is_below_capacity(&mut self, window: &Window) -> bool {
        match self.fall {
            Fall::None => self.fall = Fall::Began,
            Fall::Began => self.fall = Fall::Since { limit: self.limit, rate: window.rate, signs: 0 },
            Fall::Since { limit, rate, signs } => {
                let (fallen, slowed) = (self.limit / limit, window.rate / rate);
                // Much nearer to a rate that falls as far as the limit than to one that stays.
                let is_sign = fallen <= FALLEN && slowed < (1.0 + 2.0 * fallen) / 3.0;
                if is_sign && signs + 1 >= SIGNS {
                    self.fall = Fall::None;
                    return true;
                }
                self.fall = if slowed < FARTHER * fallen {
                    // Farther than the limit could have made it: upstream can do less than it could then.
                    Fall::Began
                } else {
                    Fall::Since { limit, rate, signs: if is_sign { signs + 1 } else { 0 } }
                };
            }
        }
        false
    }
}

/// From this share of the limit on it counts as reached.
const FULL: f64 = 0.9;
/// How much of the difference a faster window, or a slower one with room, moves the baseline. The former is no chance: it forgets a bad guess
/// in a second. The latter takes 20 s to forget half, so that what becomes slow by and by is still found slow.
const FASTER: f64 = 0.2;
const MUCH_FASTER: f64 = 0.7;
const SLOWER: f64 = 0.003;
/// How far a window may move the limit, and how much of that it does.
const MOST_DOWN: f64 = 0.5;
const MOST_UP: f64 = 1.5;
const STEP: f64 = 0.5;
/// How far the limit must have fallen before its effect on the rate can be told from chance.
const FALLEN: f64 = 0.7;
const SIGNS: u8 = 3;
const FARTHER: f64 = 0.75;
