//! What RFC 9110, 9112 and 9113 ask of a gateway, row by row: given these bytes, this is seen at either end. [`coverage`] says where attacks, faults and
//! other protocols are tested.

mod client_addresses;
mod coverage;
mod fragments;
mod framing;
mod h1_requests;
mod h2_requests;
mod own_answers;
mod refused_requests;
mod semantics;
mod upstream_answers;
