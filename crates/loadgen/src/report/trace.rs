//! `mlperf_log_trace.json`: Chrome trace events, for Perfetto or chrome://tracing.
//!
//! Same events and layout as the reference, but valid JSON (its file quotes some texts twice).
//! Written after the run from the records; off by default.

use std::io::{self, Write};

use crate::clock::Nanos;

use super::format::{json_string, micros};

/// One argument of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TraceArg<'a> {
    /// A whole number.
    Int(i64),
    /// Quoted and escaped.
    Text(&'a str),
}

/// A piece of work on one thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span<'a> {
    /// What was done.
    pub name: &'a str,
    /// Thread it was done on.
    pub tid: u32,
    /// When it began.
    pub start: Nanos,
    /// How long it took.
    pub lasted: Nanos,
    /// More about it.
    pub args: &'a [(&'a str, TraceArg<'a>)],
}

/// The life of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleTrace {
    /// Sequence number of the sample in the test.
    pub sample_seq: u64,
    /// Sequence number of its query.
    pub query_seq: u64,
    /// Position in the data set.
    pub sample_idx: u32,
    /// When it was due; the events start here.
    pub scheduled: Nanos,
    /// When its query was issued.
    pub issued: Nanos,
    /// When its first token came; none without tokens.
    pub first_token: Option<Nanos>,
    /// When it was answered.
    pub done: Nanos,
    /// Whether delay and latency are drawn as counters too (the reference does in Server).
    pub counters: bool,
}

/// Writes the trace.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    pid: u32,
}

impl<W: Write> TraceWriter<W> {
    /// Opens the list of events.
    ///
    /// # Errors
    /// What the writer says.
    pub fn new(mut out: W, pid: u32) -> io::Result<Self> {
        out.write_all(b"{\"traceEvents\":[\n")?;
        Ok(Self { out, pid })
    }

    /// Adds a complete event.
    ///
    /// # Errors
    /// What the writer says.
    pub fn span(&mut self, span: &Span<'_>) -> io::Result<()> {
        write!(
            self.out,
            "{{\"name\":{},\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{",
            json_string(span.name),
            self.pid,
            span.tid,
            micros(span.start.0),
            micros(span.lasted.0)
        )?;
        for (i, (name, value)) in span.args.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(self.out, "{comma}{}:", json_string(name))?;
            match value {
                TraceArg::Int(value) => write!(self.out, "{value}")?,
                TraceArg::Text(text) => self.out.write_all(json_string(text).as_bytes())?,
            }
        }
        self.out.write_all(b"}},\n")
    }

    /// Adds what is known of a sample: its first token, its counters, its begin and end.
    ///
    /// # Errors
    /// What the writer says.
    pub fn sample(&mut self, sample: &SampleTrace) -> io::Result<()> {
        match sample.first_token {
            Some(first) if sample.counters => self.counter("Token_Latency", sample, first)?,
            Some(first) => self.begin_and_end("Token", sample, first)?,
            None => {}
        }
        if sample.counters {
            self.counter("Latency", sample, sample.done)?;
        }
        self.begin_and_end("Sample", sample, sample.done)
    }

    fn begin_and_end(&mut self, name: &str, sample: &SampleTrace, end: Nanos) -> io::Result<()> {
        let (pid, seq) = (self.pid, sample.sample_seq);
        writeln!(
            self.out,
            "{{\"name\":\"{name}\",\"cat\":\"default\",\"ph\":\"b\",\"pid\":{pid},\"id\":{seq},\
             \"ts\":{},\"args\":{{\"sample_seq\":{seq},\"query_seq\":{},\"sample_idx\":{},\
             \"issue_start_ns\":{},\"complete_ns\":{}}}}},",
            micros(sample.scheduled.0),
            sample.query_seq,
            sample.sample_idx,
            sample.issued.0 - sample.scheduled.0,
            end.0 - sample.scheduled.0,
        )?;
        writeln!(
            self.out,
            "{{\"name\":\"{name}\",\"cat\":\"default\",\"ph\":\"e\", \"pid\":{pid},\"id\":{seq},\
             \"ts\":{}}},",
            micros(end.0)
        )
    }

    fn counter(&mut self, name: &str, sample: &SampleTrace, done: Nanos) -> io::Result<()> {
        writeln!(
            self.out,
            "{{\"name\":\"{name}\",\"ph\": \"C\",\"pid\":{},\"ts\":{},\
             \"args\":{{ \"issue_delay\":{},\"issue_to_done\":{}}}}},",
            self.pid,
            micros(sample.scheduled.0),
            sample.issued.0 - sample.scheduled.0,
            done.0 - sample.issued.0
        )
    }

    /// Closes the file and hands the writer back, flushed; `origin_unix_ns` is what times are
    /// relative to.
    ///
    /// # Errors
    /// What the writer says.
    pub fn finish(mut self, origin_unix_ns: i64) -> io::Result<W> {
        // The reference leaves out phase and process, and Perfetto counts an import error for it.
        write!(
            self.out,
            "{{\"name\":\"LastTrace\",\"ph\":\"M\",\"pid\":{},\"args\":{{}}}}\n],\n\
             \"displayTimeUnit\":\"ns\",\n\"otherData\":{{\n\
             \"ts\":{},\n\"version\":\"MLPerf LoadGen v1.0\"\n}}\n}}\n",
            self.pid,
            micros(origin_unix_ns)
        )?;
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn text_of(write: impl FnOnce(&mut TraceWriter<Vec<u8>>)) -> String {
        let mut writer = TraceWriter::new(Vec::new(), 9).unwrap();
        write(&mut writer);
        let text = String::from_utf8(writer.finish(1_796_076_679_284_521_250).unwrap()).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        text
    }

    #[test]
    fn header_and_footer() {
        expect![[r#"
            {"traceEvents":[
            {"name":"LastTrace","ph":"M","pid":9,"args":{}}
            ],
            "displayTimeUnit":"ns",
            "otherData":{
            "ts":1796076679284521.250,
            "version":"MLPerf LoadGen v1.0"
            }
            }
        "#]]
        .assert_eq(&text_of(|_| {}));
    }

    #[test]
    fn span_with_escaped_arguments() {
        let args = [
            ("tid", TraceArg::Int(9)),
            ("key", TraceArg::Text("a \"b\"")),
        ];
        let span = Span {
            name: "Wait",
            tid: 11,
            start: Nanos(-36_330),
            lasted: Nanos(10_063_226),
            args: &args,
        };
        let text = text_of(|writer| writer.span(&span).unwrap());
        let expected = concat!(
            r#"{"name":"Wait","ph":"X","pid":9,"tid":11,"ts":-36.330,"dur":10063.226,"#,
            r#""args":{"tid":9,"key":"a \"b\""}},"#
        );
        assert_eq!(text.lines().nth(1), Some(expected));
    }

    #[test]
    fn sample_with_token_and_counters() {
        // The first sample of the reference's log token_sv_valid.
        let sample = SampleTrace {
            sample_seq: 0,
            query_seq: 0,
            sample_idx: 12,
            scheduled: Nanos(79_812),
            issued: Nanos(79_978),
            first_token: Some(Nanos(2_249_139)),
            done: Nanos(4_349_133),
            counters: true,
        };
        let text = text_of(|writer| writer.sample(&sample).unwrap());
        let expected = [
            concat!(
                r#"{"name":"Token_Latency","ph": "C","pid":9,"ts":79.812,"#,
                r#""args":{ "issue_delay":166,"issue_to_done":2169161}},"#
            ),
            concat!(
                r#"{"name":"Latency","ph": "C","pid":9,"ts":79.812,"#,
                r#""args":{ "issue_delay":166,"issue_to_done":4269155}},"#
            ),
            concat!(
                r#"{"name":"Sample","cat":"default","ph":"b","pid":9,"id":0,"ts":79.812,"#,
                r#""args":{"sample_seq":0,"query_seq":0,"sample_idx":12,"#,
                r#""issue_start_ns":166,"complete_ns":4269321}},"#
            ),
            r#"{"name":"Sample","cat":"default","ph":"e", "pid":9,"id":0,"ts":4349.133},"#,
        ];
        assert!(text.lines().skip(1).take(4).eq(expected), "{text}");
    }
}
