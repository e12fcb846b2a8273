//! Which node has which slot. Immutable: a new topology is a new map.

use std::sync::Arc;

use super::node::Node;
use super::settings::Address;
use super::slot::SLOTS;

/// The nodes there are.
#[derive(Debug, Default)]
pub(super) struct Map {
    nodes: Vec<Arc<Node>>,
    owners: Owners,
    /// Who else knows the topology: replicas.
    pub(super) others: Vec<Address>,
}

#[derive(Debug, Default)]
enum Owners {
    /// The first node has everything.
    #[default]
    First,
    /// The index of each slot's node, or [`NOBODY`].
    Slots(Box<[u16]>),
}

impl Map {
    /// One node for everything.
    pub(super) fn of_one(node: Arc<Node>) -> Self {
        Self { nodes: vec![node], owners: Owners::First, others: Vec::new() }
    }

    /// `ranges` are slots from, to and including, and their node's index; later ones win.
    pub(super) fn of_many(nodes: Vec<Arc<Node>>, ranges: &[(u16, u16, usize)], others: Vec<Address>) -> Self {
        let mut slots = vec![NOBODY; SLOTS].into_boxed_slice();
        for (from, to, node) in ranges {
            let node = u16::try_from(*node).unwrap_or(NOBODY);
            slots.iter_mut().take(usize::from(*to) + 1).skip(usize::from(*from)).for_each(|slot| *slot = node);
        }
        Self { nodes, owners: Owners::Slots(slots), others }
    }

    /// Whose slot this is.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        match &self.owners {
            Owners::First => self.nodes.first(),
            Owners::Slots(slots) => self.nodes.get(usize::from(*slots.get(usize::from(slot))?)),
        }
    }

    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    pub(super) fn at(&self, address: &Address) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.address == *address)
    }
}

const NOBODY: u16 = u16::MAX;
