//! The proxies, and how each is told to do the same work.
//!
//! One worker, one upstream with keep-alive, X-Forwarded-For, one limit per API key that is never reached (or, in the denial
//! case, always). Each has the settings that its own documentation recommends for speed: access log off, connections without
//! a request limit, buffers that hold the large body. tollgate does more for the same request: three limits instead of one,
//! rate-limit headers in the answer, metrics.

use std::fmt;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use sha2::{Digest, Sha256};

use crate::options::find_tool;
use crate::origin::{LARGE_BODY, LARGE_PATH, SMALL_PATH};
use crate::process::Invocation;

/// The key that the load sends and that tollgate knows.
pub(crate) const API_KEY: &str = "benchmark-key-0193e4a2";

/// What is measured.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, ValueEnum)]
pub(crate) enum Case {
    /// Small answers, HTTP/1.1 with keep-alive, no limit reached
    Pass,
    /// Everything over the limit: status 429, no upstream involved
    Deny,
    /// Answers of 256 KiB
    Large,
    /// As pass, over cleartext HTTP/2
    H2c,
}

impl Case {
    pub(crate) const ALL: [Self; 4] = [Self::Pass, Self::Deny, Self::Large, Self::H2c];

    pub(crate) const fn status(self) -> u16 {
        if matches!(self, Self::Deny) { 429 } else { 200 }
    }

    pub(crate) const fn path(self) -> &'static str {
        if matches!(self, Self::Large) { LARGE_PATH } else { SMALL_PATH }
    }

    pub(crate) const fn body_size(self) -> Option<usize> {
        if matches!(self, Self::Large) { Some(LARGE_BODY) } else { None }
    }

    pub(crate) const fn load_generator(self) -> &'static str {
        if matches!(self, Self::H2c) { "h2load" } else { "wrk" }
    }

    /// Compares what the load generator got answered with what reached the origin.
    pub(crate) fn check_origin(self, requests: u64, served: u64) -> Result<()> {
        match self {
            Self::Deny => ensure!(served <= requests / 1000, "{served} of {requests} requests reached the origin"),
            _ => ensure!(served >= requests, "only {served} of {requests} requests reached the origin"),
        }
        Ok(())
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Deny => "deny",
            Self::Large => "large",
            Self::H2c => "h2c",
        })
    }
}

/// Who is measured.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, ValueEnum)]
pub(crate) enum Proxy {
    /// tollgate, access log off
    Tollgate,
    /// tollgate, JSON access log to /dev/null
    TollgateLog,
    /// nginx with `limit_req`
    Nginx,
    /// HAProxy with a stick table
    Haproxy,
}

impl Proxy {
    pub(crate) const ALL: [Self; 4] = [Self::Tollgate, Self::TollgateLog, Self::Nginx, Self::Haproxy];

    /// The program that has to be installed.
    pub(crate) const fn tool(self) -> Option<&'static str> {
        match self {
            Self::Tollgate | Self::TollgateLog => None,
            Self::Nginx => Some("nginx"),
            Self::Haproxy => Some("haproxy"),
        }
    }

    pub(crate) const fn writes_access_log(self) -> bool {
        matches!(self, Self::TollgateLog)
    }

    /// Writes the configuration and says how to start the proxy with it, in the foreground.
    pub(crate) fn command(self, site: &Site<'_>, tollgate: &Path) -> Result<Invocation> {
        let (config, program) = match self {
            Self::Tollgate => (tollgate_config(site, "off"), tollgate.to_owned()),
            Self::TollgateLog => (tollgate_config(site, "json"), tollgate.to_owned()),
            Self::Nginx => (nginx_config(site), find_tool("nginx").context("nginx is not installed")?),
            Self::Haproxy => (haproxy_config(site), find_tool("haproxy").context("haproxy is not installed")?),
        };
        let file = site.scratch.join(format!("{self}.conf"));
        fs::write(&file, config)?;
        let file = file.display().to_string();
        let args: &[&str] = match self {
            Self::Tollgate | Self::TollgateLog => &["run", "--config", &file],
            Self::Nginx => &["-c", &file],
            Self::Haproxy => &["-db", "-f", &file],
        };
        Ok(Invocation { program, args: args.iter().map(ToString::to_string).collect() })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tollgate => "tollgate",
            Self::TollgateLog => "tollgate-log",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
        })
    }
}

/// Where a proxy listens, and what for.
pub(crate) struct Site<'a> {
    pub(crate) case: Case,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    origin: SocketAddr,
    pub(crate) scratch: &'a Path,
}

impl<'a> Site<'a> {
    pub(crate) fn new(case: Case, origin: SocketAddr, scratch: &'a Path) -> Result<Self> {
        // Both are held until both are known, so that they differ. Somebody else may take one before the proxy does; then
        // the proxy says so and the run ends.
        let (public, admin) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        Ok(Self { case, address: public.local_addr()?, admin: admin.local_addr()?, origin, scratch })
    }
}

fn tollgate_config(site: &Site<'_>, access_log: &str) -> String {
    let Site { case, address, admin, origin, .. } = site;
    let per_client = if *case == Case::Deny { "1/day" } else { "100000000/s" };
    let key: String = Sha256::digest(API_KEY).iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        r#"listeners:
  - {{ name: public, address: "{address}", max_connections_per_ip: 0 }}
admin: {{ address: "{admin}" }}
workers: 1
clients:
  - {{ id: bench, api_keys: ["sha256:{key}"] }}
limits:
  - {{ name: global, per: global, rate: 1000000000/s }}
  - {{ name: per-client, per: client, rate: {per_client} }}
  - {{ name: per-ip, per: ip, rate: 100000000/s }}
routes:
  - {{ name: all, match: {{ path: "/{{*rest}}" }}, upstream: origin }}
upstreams:
  origin: {{ endpoints: ["http://{origin}"], max_connections: 4096 }}
access_log: {{ format: {access_log} }}
"#
    )
}

fn nginx_config(site: &Site<'_>) -> String {
    let Site { case, address, origin, scratch, .. } = site;
    let pid_file = scratch.join("nginx.pid");
    let pid_file = pid_file.display();
    let http2 = if *case == Case::H2c { " http2" } else { "" };
    let (rate, burst) = if *case == Case::Deny { ("1r/m", "") } else { ("1000000r/s", " burst=1000000 nodelay") };
    // limit_req logs each refusal as an error; `crit` keeps that out. The default proxy_buffers send a large body through a
    // temporary file, at twice the cost.
    format!(
        r"daemon off;
pid {pid_file};
error_log stderr crit;
worker_processes 1;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    limit_req_zone $http_x_api_key zone=clients:10m rate={rate};
    limit_req_status 429;
    proxy_buffer_size 64k;
    proxy_buffers 8 64k;
    proxy_busy_buffers_size 128k;
    proxy_max_temp_file_size 0;
    upstream origin {{ server {origin}; keepalive 2048; keepalive_requests 1000000000; }}
    server {{
        listen {address}{http2};
        location / {{
            limit_req zone=clients{burst};
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_pass http://origin;
        }}
    }}
}}
"
    )
}

fn haproxy_config(site: &Site<'_>) -> String {
    let Site { case, address, origin, .. } = site;
    let http2 = if *case == Case::H2c { " proto h2" } else { "" };
    let limit = if *case == Case::Deny { 1 } else { 1_000_000_000 };
    format!(
        "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option forwardfor
    http-reuse always
frontend public
    bind {address}{http2}
    stick-table type string len 64 size 100k expire 1m store http_req_rate(1m)
    http-request track-sc0 req.hdr(x-api-key)
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {limit} }}
    default_backend origin
backend origin
    server origin {origin}
"
    )
}
