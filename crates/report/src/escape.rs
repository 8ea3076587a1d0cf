//! Makes text from anywhere harmless inside HTML and SVG.

/// Escapes text for use between tags and inside quoted attributes.
///
/// Control characters other than line breaks are dropped: XML has no way to write them.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays_that_could_open_a_tag() {
        assert_eq!(
            escape("<b a=\"x\" c='y'>&\u{0}\u{1b}\n"),
            "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;\n"
        );
    }
}
