//! One decision: to the shard of its key, to another if that one says so, with the text of the script if the server does not have
//! it. All of this within one deadline, and nothing a second time that may have run.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::fault::{Fault, Refusal, Reply};
use super::node::{Node, Wire};
use super::settings::Address;
use super::shared::Shared;
use super::slot::slot;
use crate::clock::{Nanos, saturating_nanos};
use crate::store::redis::invocation::Invocation;
use crate::telemetry::metrics::Lane;

/// How far an invocation has come.
#[derive(Clone)]
struct Step {
    node: Arc<Node>,
    /// The server does not have the script, so its text goes along.
    form: Form,
    manner: Manner,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Sha,
    Text,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The node has the slot.
    Plain,
    /// The slot is on its way to the node.
    Asking,
}

/// Whether it counts among the decisions under way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A client waits; there are only so many places.
    Counted,
    /// The link bounds these itself.
    Uncounted,
}

/// Who asks, and how long it may take.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) lane: Lane,
    pub(super) place: Place,
    pub(super) limit: Duration,
    pub(super) started: Nanos,
}

enum Next {
    Answer(Value),
    Step(Step),
}

impl Shared {
    /// Runs it where its first key is.
    pub(super) async fn ask(&self, invocation: &Invocation, terms: Terms) -> Result<Value, Fault> {
        let slot = invocation.keys.first().map_or(0, |key| slot(key.as_bytes()));
        let node = self.map.load().owner(slot).cloned().ok_or(Fault::Down)?;
        let mut step = Step { node, form: Form::Sha, manner: Manner::Plain };
        for _ in 0..MAX_STEPS {
            match self.step(invocation, slot, step, terms).await? {
                Next::Answer(value) => return Ok(value),
                Next::Step(next) => step = next,
            }
        }
        // Nodes that send one another's clients in a circle are about to agree.
        Err(Fault::Down)
    }

    async fn step(&self, invocation: &Invocation, slot: u16, step: Step, terms: Terms) -> Result<Next, Fault> {
        let node = &step.node;
        if !node.is_up() {
            return Err(Fault::Down);
        }
        let _place = match terms.place {
            Place::Counted => Some(node.enter().ok_or(Fault::Overloaded)?),
            Place::Uncounted => None,
        };
        let wires = node.wires.load_full().ok_or(Fault::Down)?;
        let wire = wires.of(slot).ok_or(Fault::Down)?;
        let command = if step.form == Form::Sha { invocation.evalsha() } else { invocation.eval() };
        let left = self.left(terms)?;
        let result = match step.manner {
            Manner::Plain => wire.send(&command, left).await,
            Manner::Asking => wire.send_asking(command, left).await,
        };
        self.note(node, wire, result.as_ref().map_or_else(|fault| Some(*fault), refusal), terms.lane);
        let next = match result? {
            Reply::Answer(value) => return Ok(Next::Answer(value)),
            Reply::Refused(refusal) => {
                if refusal == Refusal::Unserved {
                    self.doubt.notify_one();
                }
                return Err(Fault::Refused(refusal));
            }
            // A text that is not known either is a server that plays games.
            Reply::NoScript if step.form == Form::Text => return Err(Fault::Garbled),
            Reply::NoScript => Step { form: Form::Text, ..step.clone() },
            Reply::Moved(to) => {
                self.doubt.notify_one();
                Step { node: self.named(&to, node, terms).await?, form: step.form, manner: Manner::Plain }
            }
            Reply::Ask(to) => Step { node: self.named(&to, node, terms).await?, form: step.form, manner: Manner::Asking },
        };
        Ok(Next::Step(next))
    }

    /// The node that another one has named.
    async fn named(&self, name: &str, by: &Node, terms: Terms) -> Result<Arc<Node>, Fault> {
        let address = Address::of_node(name, &by.address).ok_or(Fault::Garbled)?;
        let found = tokio::time::timeout(self.left(terms)?, self.find(&address)).await;
        found.map_err(|_elapsed| Fault::Down)
    }

    /// Notes how an attempt went, for the breaker and for whoever follows the topology.
    pub(super) fn note(&self, node: &Node, wire: &Wire, fault: Option<Fault>, lane: Lane) {
        if node.note(wire, fault, self.clock.now()) {
            self.tally.opened(lane);
            self.doubt.notify_one();
        }
    }

    /// Notes that an answer could not be read.
    pub(super) fn garbled(&self, invocation: &Invocation, lane: Lane) -> Fault {
        let slot = invocation.keys.first().map_or(0, |key| slot(key.as_bytes()));
        if self.map.load().owner(slot).is_some_and(|node| node.failed(Fault::Garbled, self.clock.now())) {
            self.tally.opened(lane);
        }
        Fault::Garbled
    }

    fn left(&self, terms: Terms) -> Result<Duration, Fault> {
        let spent = self.clock.now().saturating_sub(terms.started);
        let left = saturating_nanos(terms.limit).saturating_sub(spent);
        // Nothing has run: what was sent before was answered.
        if left == 0 { Err(Fault::Down) } else { Ok(Duration::from_nanos(left)) }
    }
}

fn refusal(reply: &Reply) -> Option<Fault> {
    match reply {
        Reply::Refused(refusal) => Some(Fault::Refused(*refusal)),
        _ => None,
    }
}

/// The slot's node, one that it was moved to, one that it is moving to, and the text of the script at each.
const MAX_STEPS: usize = 6;
