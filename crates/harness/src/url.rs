//! The endpoint's base URL, checked once: what to connect to, and what to write into requests.

use std::fmt;

use crate::error::UrlError;

/// `http://host[:port][/prefix]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    authority: String,
    host: String,
    port: u16,
    prefix: String,
}

impl BaseUrl {
    /// Reads a base URL. A path is kept as a prefix; `/v1` at its end is dropped, since every API
    /// path begins with it.
    ///
    /// # Errors
    /// If it is no URL, has no host, or its scheme is not `http`.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let uri: http::Uri = text
            .parse()
            .map_err(|_| UrlError::NotUrl(text.to_owned()))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(scheme) => return Err(UrlError::Scheme(scheme.to_owned())),
            None => return Err(UrlError::NoScheme(text.to_owned())),
        }
        let authority = uri
            .authority()
            .ok_or_else(|| UrlError::NotUrl(text.to_owned()))?;
        if authority.as_str().contains('@') {
            return Err(UrlError::UserInfo);
        }
        // The library reads a port it cannot hold as none at all.
        let after_host = &authority.as_str()[authority.host().len()..];
        if authority.port_u16().is_none() && !matches!(after_host, "" | ":") {
            return Err(UrlError::Port(
                after_host.trim_start_matches(':').to_owned(),
            ));
        }
        let path = uri.path().trim_end_matches('/');
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        Ok(Self {
            authority: authority.as_str().to_owned(),
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(80),
            prefix: path.strip_suffix("/v1").unwrap_or(path).to_owned(),
        })
    }

    /// Host and port as the URL has them, for the `host` header.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Host name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port; 80 when the URL names none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// An API's path below the prefix.
    #[must_use]
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// Whether the endpoint shares the machine with the client, as far as its name tells.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let ip: Option<std::net::IpAddr> = self.host.parse().ok();
        self.host == "localhost" || ip.is_some_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let shown = match BaseUrl::parse(text) {
            Ok(url) => {
                format!(
                    "{} {} {} {}",
                    url.host(),
                    url.port(),
                    url.path("/v1/x"),
                    url.is_loopback()
                )
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn reads_base_urls() {
        check("http://127.0.0.1:8000", "127.0.0.1 8000 /v1/x true");
        check("http://[::1]:1/", "::1 1 /v1/x true");
        check(
            "http://example.com/serve/v1/",
            "example.com 80 /serve/v1/x false",
        );
        check("http://example.com/v1", "example.com 80 /v1/x false");
    }

    #[test]
    fn refuses_what_it_cannot_reach() {
        check(
            "https://example.com",
            "scheme https: only http is supported",
        );
        check(
            "127.0.0.1:8000",
            "127.0.0.1:8000: no scheme; write http://host:port",
        );
        check("http://127.0.0.1:99999", "port 99999: must be 0 to 65535");
        check("http://[::1]:70000/v1", "port 70000: must be 0 to 65535");
        check("http://", "http://: not a URL; write http://host:port");
        check(
            "http://me:secret@h",
            "a user name or password in the URL is not supported; use headers",
        );
    }
}
