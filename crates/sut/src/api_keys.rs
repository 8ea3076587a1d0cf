//! The keys that open the API.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::error::SutError;

/// Keys that open the API. Only their digests are kept.
#[derive(Clone)]
pub struct ApiKeys(Arc<[[u8; 32]]>);

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({})", self.0.len())
    }
}

impl ApiKeys {
    /// Keys out of a text, on lines of their own or with commas between.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let keys = text
            .split([',', '\n'])
            .map(str::trim)
            .filter(|key| !key.is_empty());
        ApiKeys(keys.map(digest).collect())
    }

    /// Reads a file of keys, as [`ApiKeys::parse`] does.
    ///
    /// # Errors
    /// [`SutError::Flag`] for a file that cannot be read or holds no key.
    pub fn read(path: &Path) -> Result<Self, SutError> {
        let refused = |problem: String| SutError::Flag {
            flag: "--api-key-file",
            value: path.display().to_string(),
            problem,
        };
        let keys = std::fs::read_to_string(path)
            .map(|text| Self::parse(&text))
            .map_err(|e: io::Error| refused(e.to_string()))?;
        if keys.0.is_empty() {
            return Err(refused("no key in it".to_owned()));
        }
        Ok(keys)
    }

    /// Both sets of keys.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        ApiKeys(self.0.iter().chain(other.0.iter()).copied().collect())
    }

    /// Whether none is there, which would shut everybody out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the headers carry one of the keys. Looks at every key whichever fits, so that the
    /// time taken tells nothing.
    #[must_use]
    pub fn open(&self, headers: &HeaderMap) -> bool {
        let Some(key) = bearer(headers) else {
            return false;
        };
        let given = digest(key);
        let fits = self.0.iter().map(|known| known.ct_eq(&given));
        fits.fold(Choice::from(0), |any, this| any | this).into()
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// The key in `Authorization: Bearer KEY`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, key) = headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn opens(keys: &ApiKeys, authorization: &str) -> bool {
        let value = HeaderValue::try_from(authorization).expect("a header");
        keys.open(&HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
    }

    #[test]
    fn each_key_opens_and_nothing_else() {
        let keys = ApiKeys::parse("first\n\n  second \r\n,fourth").and(&ApiKeys::parse("third"));
        for good in [
            "Bearer first",
            "bearer second",
            "Bearer  third",
            "Bearer fourth",
        ] {
            assert!(opens(&keys, good), "{good}");
        }
        for bad in [
            "Bearer ",
            "Bearer",
            "first",
            "Basic first",
            "Bearer firs",
            "Bearer first2",
        ] {
            assert!(!opens(&keys, bad), "{bad}");
        }
        assert!(!keys.open(&HeaderMap::new()));
    }
}
