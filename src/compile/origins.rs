//! What stands in a list of endpoints, in the configuration or in a file of its own: addresses, names, services and sockets.

use std::net::IpAddr;
use std::sync::Arc;

use http::Uri;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::config;
use crate::request::Authority;
use crate::snapshot::{Origin, Place, Query};
use crate::socket::Address;

/// What a list of endpoints means. `server_name` is the name of all their certificates, if they have one.
///
/// # Errors
/// Everything that is wrong with it, with the place in the list.
pub fn origins(
    endpoints: &[config::Endpoint],
    server_name: Option<&ServerName<'static>>,
) -> Result<Vec<Origin>, Vec<(usize, String)>> {
    let (mut compiled, mut problems) = (Vec::<Origin>::new(), Vec::new());
    for (at, endpoint) in endpoints.iter().enumerate() {
        if endpoint.weight == 0 {
            problems.push((at, "weight must be at least 1; take the endpoint out to give it nothing".to_owned()));
        }
        match origin(endpoint) {
            Err(problem) => problems.push((at, problem)),
            Ok(origin) if compiled.iter().any(|other| other.place == origin.place) => {
                problems.push((at, format!("{} is there already; use `weight` to give it more", endpoint.url)));
            }
            Ok(mut origin) => {
                origin.tls = origin.tls.map(|own| server_name.cloned().unwrap_or(own));
                compiled.push(origin);
            }
        }
    }
    if problems.is_empty() { Ok(compiled) } else { Err(problems) }
}

/// What one of them means.
pub(super) fn origin(endpoint: &config::Endpoint) -> Result<Origin, String> {
    let (url, weight) = (endpoint.url.as_str(), endpoint.weight);
    if url.starts_with("unix:") {
        let address: Address = url.parse().map_err(|error| format!("`{url}` {error}"))?;
        return Ok(Origin { place: Place::Address(address), weight, tls: None, host: LOCAL_HOST.into() });
    }
    match url.split_once("://") {
        Some(("http+srv", name)) => service(name, weight, false),
        Some(("https+srv", name)) => service(name, weight, true),
        Some(("srv", _)) => Err("write http+srv:// or https+srv://, which also says whether TLS is spoken".to_owned()),
        _ => server(url, weight),
    }
}

fn server(url: &str, weight: u32) -> Result<Origin, String> {
    let uri: Uri = url.parse().map_err(|_| WRONG.to_owned())?;
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https")).ok_or(WRONG)?;
    let plain = matches!(uri.path(), "" | "/") && uri.query().is_none();
    let authority = uri.authority().filter(|authority| plain && !authority.as_str().contains('@')).ok_or(WRONG)?;
    let Authority { host, port } = Authority::parse(authority.as_str().as_bytes(), scheme).map_err(|_| WRONG.to_owned())?;
    let is_secure = scheme == "https";
    let port = port.unwrap_or(if is_secure { 443 } else { 80 });
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    let place = match bare.parse::<IpAddr>() {
        Ok(address) => Place::Address(Address::Tcp((address, port).into())),
        Err(_) => {
            let name = domain_name(bare)?;
            // Behind a dot at its end nothing of a search list may come.
            let dot = if authority.host().ends_with('.') { "." } else { "" };
            Place::Host(Query::Host(format!("{name}{dot}").into()), port)
        }
    };
    let tls = is_secure.then(|| certificate_name(bare)).transpose()?;
    Ok(Origin { place, weight, tls, host: format!("{host}:{port}").into() })
}

/// A certificate must be for the domain that was asked, not for the host that an answer names: anybody could have given that.
fn service(name: &str, weight: u32, is_secure: bool) -> Result<Origin, String> {
    let name = name.strip_suffix('/').unwrap_or(name).to_ascii_lowercase();
    let mut labels = name.splitn(3, '.');
    let (service, protocol) = (labels.next().unwrap_or_default(), labels.next().unwrap_or_default());
    let domain = labels.next().filter(|_| service.starts_with('_') && matches!(protocol, "_tcp" | "_udp"));
    let domain = domain.ok_or("a service is http+srv://_service._tcp.domain, such as http+srv://_http._tcp.api.internal")?;
    let host = domain_name(domain.strip_suffix('.').unwrap_or(domain))?;
    domain_name(service)?;
    let tls = is_secure.then(|| certificate_name(host)).transpose()?;
    let host: Arc<str> = host.into();
    Ok(Origin { place: Place::Service(Query::Service(name.as_str().into())), weight, tls, host })
}

fn domain_name(name: &str) -> Result<&str, String> {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if name.len() > MOST_OF_A_NAME || !name.split('.').all(is_label) {
        return Err(format!("`{name}` is not a domain name"));
    }
    if name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(format!("`{name}` is neither an address nor a domain name, which never ends in a number"));
    }
    Ok(name)
}

fn certificate_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned()).map_err(|_| format!("no certificate can be for `{host}`"))
}

const WRONG: &str =
    "an endpoint is http://host:port or https://host:port without a path, such as http://10.0.0.7:8080, or unix:/path";
/// What a request over a Unix socket is for, if it doesn't say: there is no host.
const LOCAL_HOST: &str = "localhost";
/// RFC 1035 §2.3.4, without the dot at the end.
const MOST_OF_A_NAME: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Origin, String> {
        origin(&config::Endpoint { url: url.to_owned(), weight: 1 })
    }

    #[test]
    fn endpoints_are_addresses_names_services_or_sockets() {
        let tcp = |address: &str| Place::Address(Address::Tcp(address.parse().unwrap()));
        let host = |name: &str, port| Place::Host(Query::Host(name.into()), port);
        let service = |name: &str| Place::Service(Query::Service(name.into()));
        for (url, place, host, secure) in [
            ("http://10.0.0.7:8080", tcp("10.0.0.7:8080"), "10.0.0.7:8080", false),
            ("https://[2001:DB8::1]/", tcp("[2001:db8::1]:443"), "[2001:db8::1]:443", true),
            ("http://API.internal:9001", host("api.internal", 9001), "api.internal:9001", false),
            ("https://api.internal.", host("api.internal.", 443), "api.internal:443", true),
            ("http+srv://_http._tcp.api.internal", service("_http._tcp.api.internal"), "api.internal", false),
            ("https+srv://_api._tcp.Example.com./", service("_api._tcp.example.com."), "example.com", true),
            ("unix:/run/api.sock", Place::Address("unix:/run/api.sock".parse().unwrap()), "localhost", false),
        ] {
            let origin = read(url).unwrap();
            assert_eq!((&origin.place, &*origin.host, origin.tls.is_some()), (&place, host, secure), "{url}");
        }
        assert_eq!(read("https+srv://_api._tcp.a.example").unwrap().tls, ServerName::try_from("a.example").ok());
    }

    #[test]
    fn what_is_none_of_these_is_refused() {
        for url in [
            "ftp://a",
            "http://a/x",
            "http://u@a",
            "unix:run/api.sock",
            "http://127.1",
            "http://a..b",
            "srv://_http._tcp.a",
            "http+srv://api.internal",
            "http+srv://_http._tcp",
            "http+srv://_http._tcp.a:80",
            "http://-x~y",
        ] {
            assert!(read(url).is_err(), "{url}");
        }
        let twice = ["http://a:80", "http://a"].map(|url| config::Endpoint { url: url.to_owned(), weight: 1 });
        assert_eq!(origins(&twice, None).unwrap_err()[0].0, 1);
    }
}
