//! Where each statement about attacks, faults and protocols beside HTTP itself is tested. The statements have the names that comments of the
//! tests use: `SM` smuggling, `HF` HTTP/2 floods, `SL` slow and large, `UF` faults of upstreams, `GR` gRPC, `WS` upgrades, `TLS`; `H2` is what RFC 9113
//! asks of a server, section by section.
//!
//! A test keeps the list honest: every test it names exists.

use std::path::Path;

/// Statement, in short, and the tests that prove it: a module under `tests/it` and a test in it. `*` stands for all of a module.
type Row = (&'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip]
const SMUGGLING: &[Row] = &[
    ("SM-1", "both framings, the length first", &["smuggling::length_and_coding_together_smuggle_nothing", "standards::h1_requests::length_and_coding_together_never_reach_the_upstream_together"]),
    ("SM-2", "both framings, the coding first", &["smuggling::length_and_coding_together_smuggle_nothing"]),
    ("SM-3", "every spelling of Transfer-Encoding", &["smuggling::no_spelling_of_transfer_encoding_smuggles", "standards::refused_requests::unknown_transfer_codings"]),
    ("SM-4", "bodies behind answers made from the head: 429, 401, 403, 404, 405, 413, 417, 400, fixed responses", &["smuggling::the_body_of_a_request_answered_from_its_head_is_never_the_next_request", "standards::framing::a_429_in_a_pipeline_does_not_desync_it", "standards::fragments::a_hash_in_a_refused_body_is_no_fragment_of_the_next_request"]),
    ("SM-5", "HTTP/2 lengths and codings", &["standards::h2_requests::data_that_contradicts_content_length_resets_the_stream_and_aborts_the_upstream_request", "http2_clients::fields::data_is_as_long_as_was_announced", "http2_clients::fields::what_is_beyond_the_length_never_reaches_the_upstream_as_a_request"]),
    ("SM-6", "line ends in HTTP/2 fields", &["standards::h2_requests::fields_are_refused_or_translated", "standards::h2_requests::pseudo_fields_are_validated_before_a_request_line_is_made_of_them", "standards::h2_requests::one_authority_decides", "http2_clients::fields::trailers_end_the_stream_and_are_fields"]),
    ("SM-7", "chunk extensions and line ends in chunks", &["standards::refused_requests::malformed_chunks", "standards::framing::chunk_framing_of_the_client_is_not_forwarded", "standards::h1_requests::a_malformed_chunk_is_the_clients_fault_and_aborts_the_upstream_request"]),
    ("SM-8", "numbers that are none", &["standards::refused_requests::malformed_lengths", "standards::refused_requests::malformed_chunks", "smuggling::no_spelling_of_content_length_smuggles"]),
    ("SM-9", "fields twice", &["standards::refused_requests::malformed_lengths", "smuggling::no_spelling_of_content_length_smuggles", "standards::h1_requests::only_one_plain_chunked_is_a_transfer_coding"]),
    ("SM-10", "names that are none", &["standards::refused_requests::malformed_heads", "smuggling::no_spelling_of_content_length_smuggles"]),
    ("SM-11", "underscores and dots", &["standards::h1_requests::names_that_fold_onto_trusted_ones_are_dropped"]),
    ("SM-12", "a request behind an upgrade", &["smuggling::a_request_behind_an_upgrade_is_a_request_of_its_own_and_counted"]),
    ("SM-13", "codings in HTTP/1.0, bodies without an end", &["standards::refused_requests::unknown_transfer_codings", "smuggling::what_stands_behind_a_head_without_framing_is_no_body", "smuggling::a_coding_that_does_not_end_a_body_is_refused"]),
    ("SM-14", "h2c by upgrade", &["standards::h1_requests::hop_by_hop_fields_end_here"]),
    ("SM-15", "request targets", &["standards::h1_requests::targets_are_forwarded_exactly_or_refused", "standards::fragments::*", "regressions::targets::*", "spoofing::every_spelling_of_a_path_that_reaches_its_route_meets_its_limit"]),
    ("SM-16", "answers nobody asked for, too early, too many", &["standards::upstream_answers::*", "regressions::bodies::bytes_behind_a_204_are_nobodys_answer"]),
    ("SM-17", "pipelines", &["smuggling::pipelines_stay_in_order_and_end_at_the_first_fault", "standards::framing::pipelined_requests_are_answered_in_order", "standards::framing::nothing_is_read_behind_connection_close"]),
    ("SM-18", "nobody sees another's bytes", &["isolation::*"]),
];

#[rustfmt::skip]
const FLOODS: &[Row] = &[
    ("HF-1", "rapid reset", &["floods::resets::rapid_resets_are_charged_and_cancelled_upstream", "floods::resets::resets_at_once_end_the_connection", "floods::resets::resets_at_leisure_end_the_connection_too", "floods::resets::a_burst_of_resets_is_told_to_calm_down", "floods::resets::who_resets_less_than_half_is_no_attacker"]),
    ("HF-2", "streams that we are made to reset", &["floods::resets::streams_that_we_are_made_to_reset_end_the_connection_too", "floods::resets::slots_count_the_work_and_not_the_streams"]),
    ("HF-3", "CONTINUATION without end", &["floods::frames::an_endless_header_block_ends_the_connection_and_costs_no_memory"]),
    ("HF-4", "frames that cost nothing", &["floods::frames::control_frames_do_not_starve_others", "floods::frames::a_client_that_does_not_read_is_owed_no_more_than_a_bound", "floods::frames::bodies_of_nothing_end_the_connection_or_cost_nothing", "floods::frames::heads_of_nothing_cost_nothing"]),
    ("HF-5", "HPACK bombs and tables resized all the time", &["http2_clients::compression::a_small_block_that_unfolds_to_a_large_head_is_refused_by_what_it_unfolds_to", "http2_clients::compression::a_table_that_is_resized_all_the_time_costs_nothing"]),
    ("HF-6", "clients that grant no window, or one octet", &["floods::readers::responses_that_nobody_takes_are_not_kept_and_end", "floods::readers::a_window_of_one_holds_the_upstream_back_and_costs_no_memory", "regressions::slots::an_http2_client_without_window_does_not_keep_its_slot"]),
    ("HF-7", "many streams of one connection", &["floods::readers::ten_thousand_streams_of_one_connection_are_each_counted", "spoofing::two_hundred_streams_at_once_admit_exactly_the_quota", "http2_clients::streams::streams_beyond_the_limit_are_refused_and_the_others_live"]),
    ("HF-8", "connections that do not begin, or say goodbye and stay", &["http2_clients::a_connection_begins_with_the_preface", "http2_clients::half_a_beginning_is_not_waited_for", "http2_clients::a_clients_goaway_ends_no_request_of_its_own"]),
    ("SL-1", "slow heads", &["forwarding::patience::half_a_head_is_not_waited_for_for_ever", "forwarding::patience::half_a_pipelined_head_is_not_given_the_patience_of_an_idle_connection", "floods::readers::slow_beginnings_end_and_a_healthy_client_notices_nothing"]),
    ("SL-2", "slow bodies", &["forwarding::pace::*", "forwarding::patience::an_upload_that_stalls_ends_and_aborts_the_upstream_request", "floods::readers::slow_beginnings_end_and_a_healthy_client_notices_nothing"]),
    ("SL-3", "slow readers", &["forwarding::patience::a_client_that_does_not_read_its_response_is_dropped", "floods::readers::http1_clients_that_do_not_read_are_not_buffered_for_and_end"]),
    ("SL-4", "idle connections", &["forwarding::patience::an_idle_connection_is_closed_after_keep_alive", "forwarding::patience::a_connection_that_says_nothing_is_closed", "tls::faults::a_stalled_client_is_closed_in_time"]),
    ("SL-5", "connections in all, and of one address or prefix", &["lifecycle::drain::connections_beyond_the_limit_are_refused_and_the_limit_recovers", "addresses::connections::*", "tls::protocols::connections_are_capped_before_they_shake_hands"]),
    ("SL-6", "large heads", &["standards::refused_requests::too_large_heads", "forwarding::sizes::*", "floods::frames::endless_heads_of_http1_end_at_a_bound", "standards::client_addresses::a_list_of_a_thousand_entries_is_read_or_refused_but_no_error"]),
    ("SL-7", "large bodies", &["forwarding::sizes::a_body_that_is_too_long_by_its_length_never_reaches_the_upstream", "forwarding::sizes::a_chunked_body_that_grows_too_long_is_a_413_and_aborts_the_upstream_request", "standards::semantics::a_refusal_comes_without_a_100_before_it"]),
    ("SL-8", "compressed bodies", &["forwarding::bodies::compressed_bodies_are_passed_on_as_they_are"]),
    ("SL-9", "half-closed and broken connections", &["standards::semantics::a_client_that_half_closes_behind_its_request_is_answered_in_full_or_the_call_is_cancelled", "floods::connections::a_flood_of_broken_connections_leaves_nothing_behind"]),
    ("OS-1", "no files left", &["floods::connections::running_out_of_files_neither_ends_nor_spins_the_gateway"]),
];

#[rustfmt::skip]
const UPSTREAMS: &[Row] = &[
    ("UF-1", "refuses", &["forwarding::faults::no_upstream_is_a_502_at_once", "forwarding::faults::a_dead_endpoint_is_passed_over_for_every_method"]),
    ("UF-2", "never answers", &["forwarding::patience::an_upstream_that_never_answers_is_a_504", "http2_upstream::faults::silence_is_a_504_and_within_the_body_it_breaks_off"]),
    ("UF-3", "stalls within the body", &["forwarding::patience::a_response_that_stalls_is_cut"]),
    ("UF-4", "is slow and steady", &["forwarding::patience::a_slow_but_steady_response_is_not_cut"]),
    ("UF-5", "closes within head or body", &["standards::upstream_answers::http1_clients_see_a_clean_answer_or_a_visible_failure", "standards::upstream_answers::http2_clients_see_a_clean_answer_or_a_reset_stream", "tls::upstreams::a_body_that_is_cut_is_never_complete"]),
    ("UF-6", "resets", &["forwarding::faults::resets_are_failures_like_closes"]),
    ("UF-7", "answers while the client uploads", &["forwarding::bodies::an_answer_that_comes_before_the_upload_is_over_reaches_the_client", "http2_upstream::bodies::an_answer_that_comes_before_the_upload_is_over_reaches_the_client"]),
    ("UF-8", "closes when it is used again", &["forwarding::faults::a_get_that_meets_a_closing_connection_is_sent_once_more", "forwarding::faults::a_post_that_meets_a_closing_connection_is_not_sent_again", "http2_upstream::connections::a_get_whose_reused_connection_breaks_is_sent_once_more_and_a_post_is_not"]),
    ("UF-9", "answers before it reads", &["forwarding::bodies::an_answer_that_comes_before_the_upload_is_over_reaches_the_client", "isolation::nobody_sees_anothers_bytes_in_front_of_an_http1_upstream"]),
    ("UF-10", "sends interim answers without end", &["standards::upstream_answers::ten_thousand_interim_answers_end_in_an_answer_and_cost_no_memory", "http2_upstream::messages::hints_are_passed_on_and_a_flood_of_interim_responses_is_a_502", "forwarding::interim::more_of_them_than_a_bound_are_a_502_and_never_more_than_the_bound_are_passed_on"]),
    ("UF-11", "sends a head without end", &["standards::upstream_answers::a_head_without_end_is_cut_off", "http2_upstream::faults::a_head_that_is_too_large_is_a_502"]),
    ("UF-12", "GOAWAY, REFUSED_STREAM, RST_STREAM", &["http2_upstream::connections::a_goaway_ends_no_request", "http2_upstream::connections::streams_above_the_last_of_a_goaway_are_opened_elsewhere", "http2_upstream::connections::a_refused_stream_is_opened_once_more_elsewhere_and_charged_once", "http2_upstream::faults::a_reset_within_the_body_is_never_a_complete_response"]),
    ("UF-13", "the client leaves", &["forwarding::faults::a_client_that_leaves_cancels_the_upstream_call_and_is_no_upstream_failure", "limits::queues::the_last_in_the_queue_gives_his_place_back_when_he_leaves", "limits::queues::a_reset_http2_stream_leaves_the_queue_and_its_connection_goes_on", "http2_upstream::faults::a_client_that_leaves_cancels_the_stream_and_is_no_upstream_failure"]),
    ("UF-14", "all are down", &["forwarding::faults::no_upstream_is_a_502_at_once", "upstreams::health::with_nobody_in_use_the_answer_is_a_503_at_once"]),
    ("UF-16", "retries are bounded", &["forwarding::faults::a_get_is_not_retried_for_ever", "http2_upstream::connections::who_refuses_twice_is_not_asked_a_third_time", "retry::rules::*", "retry::bodies::*"]),
    ("UF-17", "one bad endpoint of several, and slow returns", &["upstreams::outlier::*", "upstreams::admin::who_returns_begins_with_a_small_share"]),
    ("UF-18", "what clients do is no failure of an endpoint", &["upstreams::outlier::what_clients_do_never_counts", "upstreams::http2::what_a_request_or_a_restart_brings_about_does_not_count", "upstreams::http2::a_caller_in_a_hurry_does_not_count"]),
    ("UF-19", "limits of its own", &["standards::semantics::unknown_statuses_and_response_fields_pass", "standards::upstream_answers::http1_clients_see_a_clean_answer_or_a_visible_failure"]),
];

#[rustfmt::skip]
const PROTOCOLS: &[Row] = &[
    ("GR-2", "which status a refused call has", &["grpc::refusals::a_call_over_a_limit_gets_a_head_and_nothing_else", "grpc::refusals::the_operator_may_call_it_unavailable", "grpc::refusals::every_answer_of_the_gateway_has_its_status"]),
    ("GR-3", "trailers only", &["grpc::refusals::a_call_over_a_limit_gets_a_head_and_nothing_else", "grpc::refusals::a_refused_call_is_ended_while_its_client_still_talks"]),
    ("GR-4", "what is a call", &["grpc::refusals::what_only_looks_like_grpc_gets_an_answer_of_http"]),
    ("GR-5", "when to come back", &["grpc::refusals::a_call_over_a_limit_gets_a_head_and_nothing_else"]),
    ("GR-6", "deadlines, trailers, streams", &["grpc::calls::*"]),
    ("GR-7", "one call is one request", &["grpc::calls::both_stream_and_it_is_one_call"]),
    ("WS-1", "what is offered upstream", &["upgrade::handshake::upstream_is_offered_a_websocket_and_nothing_else", "upgrade::handshake::a_client_without_one_key_gets_no_websocket_whatever_upstream_says"]),
    ("WS-2", "a tunnel only after a right 101, and early bytes", &["upgrade::handshake::an_answer_that_does_not_fit_is_a_502", "upgrade::handshake::early_bytes_wait_for_the_101_on_both_sides", "upgrade::handshake::bytes_behind_an_upgrade_that_is_refused_are_the_next_request", "upgrade::handshake::frames_behind_a_refused_handshake_reach_nobody"]),
    ("WS-3", "101 unasked, protocols nobody listed", &["standards::upstream_answers::http1_clients_see_a_clean_answer_or_a_visible_failure", "smuggling::a_request_behind_an_upgrade_is_a_request_of_its_own_and_counted", "standards::h1_requests::hop_by_hop_fields_end_here", "upgrade::handshake::a_route_says_what_its_connections_may_become"]),
    ("WS-4", "counted once, held until both sides have ended", &["upgrade::life::a_websocket_is_one_request_however_much_goes_over_it", "upgrade::life::a_slot_is_held_until_both_sides_have_ended_and_comes_back_however_they_do", "upgrade::life::a_reload_leaves_a_tunnel_as_it_was_agreed"]),
    ("WS-5", "the same bytes and ends, back-pressure, idle, drains", &["upgrade::echo::*", "upgrade::drain::*", "upgrade::life::half_a_close_holds_the_slot_and_carries_what_comes_the_other_way", "upgrade::life::a_slow_reader_slows_the_sender_and_fills_no_memory", "upgrade::life::who_says_nothing_for_too_long_is_closed_and_told_so"]),
    ("WS-6", "extended CONNECT", &["upgrade::http2::*", "standards::h2_requests::pseudo_fields_are_validated_before_a_request_line_is_made_of_them"]),
    ("TLS-1", "certificates by name", &["tls::names::the_name_decides_exact_before_wildcard_before_the_first"]),
    ("TLS-2", "ALPN", &["tls::protocols::alpn_decides_and_http1_is_the_custom", "tls::protocols::protocols_of_the_listener_are_what_is_offered"]),
    ("TLS-3", "another name inside", &["tls::names::another_name_inside_is_routed_by_that_name"]),
    ("TLS-4", "old versions, early data", &["tls::faults::tls_1_1_is_refused", "tls::openssl::it_gets_nowhere_with_an_old_version", "tls::openssl::it_is_offered_no_early_data_and_sends_none"]),
    ("TLS-5", "renewal", &["tls::files::*"]),
    ("TLS-6", "certificates of clients", &["tls::client_certificates::*"]),
    ("TLS-7", "handshakes that stall, clear text on the port", &["tls::faults::a_stalled_client_is_closed_in_time", "tls::faults::what_is_no_tls_is_told_if_it_understands_and_counted", "tls::faults::a_hello_byte_by_byte_is_a_hello", "tls::handshakes::*"]),
    ("H2 §3.4", "preface", &["http2_clients::a_connection_begins_with_the_preface"]),
    ("H2 §4, §6.10", "frames, header blocks", &["http2_clients::framing::*"]),
    ("H2 §4.3, RFC 7541", "HPACK", &["http2_clients::compression::*"]),
    ("H2 §5.1, §5.3", "stream states, priorities", &["http2_clients::streams::*"]),
    ("H2 §6.5, §6.7, §6.8", "SETTINGS, PING, GOAWAY", &["http2_clients::control::*"]),
    ("H2 §5.2, §6.9", "flow control", &["http2_clients::flow::*"]),
    ("H2 §8", "requests", &["http2_clients::fields::*", "standards::h2_requests::*"]),
];

#[test]
fn every_test_that_is_named_exists() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut missing = Vec::new();
    for (id, what, names) in [SMUGGLING, FLOODS, UPSTREAMS, PROTOCOLS].concat() {
        for name in names {
            let (module, test) = name.rsplit_once("::").unwrap();
            let path = module.replace("::", "/");
            let source = [format!("{path}.rs"), format!("{path}/mod.rs")]
                .iter()
                .find_map(|file| std::fs::read_to_string(tests.join(file)).ok());
            let wanted = if test == "*" { "#[test]\nfn ".to_owned() } else { format!("#[test]\nfn {test}(") };
            if source.is_none_or(|source| !source.contains(&wanted)) {
                missing.push(format!("{id}, {what}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "no such tests:\n  {}", missing.join("\n  "));
}
