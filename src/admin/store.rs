//! `/store`: how the way to the shared store is, and what is leased from it. No secrets.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Control, error_json, json_body};
use crate::store::redis::SharedStore;
use crate::store::redis::link::NodeHealth;
use crate::telemetry::metrics::{self, Sample};

/// Answers `GET /store`.
pub(super) fn answer(control: &Control) -> Response<Full<Bytes>> {
    let Some(shared) = &control.store.shared else {
        return error_json(StatusCode::NOT_FOUND, "there is no shared store: this gateway counts alone");
    };
    let (health, leases) = (shared.link().health(), shared.occupancy());
    let nodes: Vec<_> = health.nodes.iter().map(|node| shown(shared, node)).collect();
    let leases = json!({ "counters": leases.leases, "cells": leases.cells });
    json_body(
        StatusCode::OK,
        &json!({ "topology": health.topology, "instances": health.instances, "nodes": nodes, "leases": leases }),
    )
}

/// What there is to measure of the shared store.
pub(super) fn samples(control: &Control) -> Vec<Sample> {
    let Some(shared) = &control.store.shared else { return Vec::new() };
    let mut samples = shared.link().samples();
    samples.push(Sample::number(metrics::STORE_LEASED, &[], shared.occupancy().cells));
    samples
}

fn shown(shared: &SharedStore, node: &NodeHealth) -> Value {
    let NodeHealth { address, up, since, last_error, connections, in_flight, slots } = node;
    let since = i64::try_from(shared.unix_time_of(*since)).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    json!({
        "address": address,
        "up": up,
        "since": since.map(|since| since.to_string()),
        "last_error": last_error,
        "connections": connections,
        "in_flight": in_flight,
        "slots": slots,
    })
}
