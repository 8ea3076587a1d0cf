//! Configuration files in, settings out, and for each field where its value came from.
//!
//! Three kinds, as in the reference: the rules of the round (compiled in), `user.conf`,
//! `audit.config`. `keys` says which key sets which field, `parse` reads as the reference does and
//! `strict` as it should be done; `apply` looks keys up and converts, `mlperf` holds the rules.

pub mod number;

pub mod keys;

pub mod parse;

pub mod mlperf;

pub mod origin;

pub mod apply;

pub mod strict;

use std::collections::BTreeMap;
use std::path::Path;

use crate::conf::apply::{Applied, ERROR_INVALID_CONFIG, Target, apply};
use crate::conf::keys::ConfKind;
use crate::conf::mlperf::Round;
use crate::conf::origin::Origin;
use crate::conf::parse::Entries;
use crate::error::{ConfProblem, LoadgenError, RefusedSetting};
use crate::scenario::{Mode, Scenario};
use crate::settings::fields::set_assignment;
use crate::settings::{NoteKind, SettingsNote, TestSettings};

/// Return code of a file that could not be opened; the reference's `-ENOENT`.
pub const RC_NOT_FOUND: i32 = -2;
/// Return code of a file with an error in it; the reference's `-EINVAL`.
pub const RC_INVALID: i32 = -22;

/// Settings with their history.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Configured {
    /// The settings so far.
    pub settings: TestSettings,
    /// What the reference would have logged so far; it goes to the detail log of the run.
    pub notes: Vec<SettingsNote>,
    origins: BTreeMap<&'static str, Origin>,
    /// Calls for a `user.conf`, failed ones too. The reference counts them per process, which
    /// makes the second test of a process differ from the first; here they count per settings.
    user_conf_calls: u32,
}

impl Configured {
    /// Default settings for `scenario`.
    #[must_use]
    pub fn new(scenario: Scenario) -> Self {
        let mut configured = Self::default();
        configured.settings.scenario = scenario;
        configured.origins.insert("scenario", Origin::Caller);
        configured
    }

    /// Where the value of a field came from.
    #[must_use]
    pub fn origin(&self, field: &str) -> &Origin {
        const DEFAULT: &Origin = &Origin::Default;
        self.origins.get(field).unwrap_or(DEFAULT)
    }

    /// Applies the rules of `round`: the reference's `FromConfig` with `conf_type` 0.
    pub fn apply_round(&mut self, round: Round, target: Target<'_>) {
        let name = round.name;
        self.apply_entries(
            &mlperf::entries(round),
            ConfKind::Mlperf,
            target,
            |applied| Origin::Round {
                round: name,
                key: applied.key,
                value: applied.entry.value,
            },
        );
    }

    /// Applies a `user.conf` or `audit.config` as the reference's `FromConfig` does.
    ///
    /// The first `user.conf` brings the rules of `round` along, even if it cannot be read; a
    /// second one does not, and is noted as an error.
    ///
    /// Returns 0, [`RC_NOT_FOUND`] or [`RC_INVALID`].
    pub fn from_config(
        &mut self,
        path: &Path,
        kind: ConfKind,
        round: Round,
        target: Target<'_>,
    ) -> i32 {
        match self.apply_file(path, kind, round, target) {
            Ok(()) => 0,
            Err(LoadgenError::Io { .. }) => RC_NOT_FOUND,
            Err(_) => RC_INVALID,
        }
    }

    /// [`from_config`](Self::from_config) with the reason of a failure.
    ///
    /// # Errors
    /// If the file cannot be read or has a bad line; nothing of the file is applied then.
    pub fn apply_file(
        &mut self,
        path: &Path,
        kind: ConfKind,
        round: Round,
        target: Target<'_>,
    ) -> Result<(), LoadgenError> {
        self.rules_before(kind, round, target);
        let bytes = std::fs::read(path).map_err(|source| {
            self.note_error(format!("can't open file {}", path.display()));
            LoadgenError::Io {
                path: path.to_owned(),
                source,
            }
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let entries = parse::parse(&text).map_err(|problems| {
            for ConfProblem { line, text, .. } in &problems {
                self.note_error(format!("{text}, line={line}"));
            }
            LoadgenError::BadConfiguration {
                path: path.to_owned(),
                problems,
            }
        })?;
        self.apply_file_entries(path, &entries, kind, target);
        Ok(())
    }

    /// Applies a file that must be free of anything the reference would pass over in silence.
    ///
    /// # Errors
    /// If the file cannot be read or has a problem; nothing is applied then.
    pub fn apply_file_strictly(
        &mut self,
        path: &Path,
        kind: ConfKind,
        round: Round,
        target: Target<'_>,
    ) -> Result<(), LoadgenError> {
        let text = std::fs::read_to_string(path).map_err(|source| LoadgenError::Io {
            path: path.to_owned(),
            source,
        })?;
        let entries = strict::parse(&text, kind, target.model).map_err(|problems| {
            LoadgenError::BadConfiguration {
                path: path.to_owned(),
                problems,
            }
        })?;
        self.rules_before(kind, round, target);
        self.apply_file_entries(path, &entries, kind, target);
        Ok(())
    }

    /// Applies one `name=value` of the caller's.
    ///
    /// # Errors
    /// If there is no such field or the value is not of its kind.
    pub fn set(&mut self, assignment: &str) -> Result<(), RefusedSetting> {
        let (field, _) = set_assignment(&mut self.settings, assignment)?;
        self.origins.insert(field.name, Origin::Caller);
        Ok(())
    }

    /// What the start of a test does to the settings: the audit file if there is one, then the
    /// seeds of test 05. Audit files are looked up for any model, and test 05 takes the seeds that
    /// were set before the audit file.
    pub fn apply_at_start(&mut self, audit: Option<&Path>) {
        let given = self.settings.clone();
        if let Some(path) = audit.filter(|path| path.is_file()) {
            self.notes.push(SettingsNote {
                kind: NoteKind::Warning,
                key: "warning_generic_message",
                text: format!(
                    "Found Audit Config file ({}). Overriding TestSettings from {0} file.",
                    path.display()
                ),
            });
            let target = Target {
                model: "*",
                scenario: self.settings.scenario,
            };
            // What fails is in the notes, and the test goes on without it, as in the reference.
            self.from_config(path, ConfKind::Audit, Round::CURRENT, target);
        }
        if self.settings.test05 {
            self.reseed_for_test05(&given);
        }
    }

    fn reseed_for_test05(&mut self, given: &TestSettings) {
        self.notes.push(SettingsNote {
            kind: NoteKind::Warning,
            key: "warning_generic_message",
            text: "Test05 flag detected Overriding random seeds".to_owned(),
        });
        self.settings.mode = Mode::PerformanceOnly;
        self.settings.qsl_rng_seed = given.test05_qsl_rng_seed;
        self.settings.sample_index_rng_seed = given.test05_sample_index_rng_seed;
        self.settings.schedule_rng_seed = given.test05_schedule_rng_seed;
        for field in [
            "mode",
            "qsl_rng_seed",
            "sample_index_rng_seed",
            "schedule_rng_seed",
        ] {
            self.origins.insert(field, Origin::Test05);
        }
    }

    fn rules_before(&mut self, kind: ConfKind, round: Round, target: Target<'_>) {
        if kind != ConfKind::User {
            return;
        }
        self.user_conf_calls += 1;
        if self.user_conf_calls == 1 {
            self.apply_round(round, target);
        } else {
            let text = "Multiple conf files are used. This is not valid for official submission.";
            self.note_error(text.to_owned());
        }
    }

    fn apply_file_entries(
        &mut self,
        path: &Path,
        entries: &Entries,
        kind: ConfKind,
        target: Target<'_>,
    ) {
        self.apply_entries(entries, kind, target, |applied| Origin::File {
            kind,
            path: path.to_owned(),
            line: applied.entry.line,
            key: applied.key,
            value: applied.entry.value,
        });
    }

    fn apply_entries(
        &mut self,
        entries: &Entries,
        kind: ConfKind,
        target: Target<'_>,
        origin: impl Fn(Applied) -> Origin,
    ) {
        let (applied, notes) = apply(&mut self.settings, entries, kind, target);
        self.notes.extend(notes);
        for one in applied {
            self.origins.insert(one.field, origin(one));
        }
    }

    fn note_error(&mut self, text: String) {
        self.notes.push(SettingsNote {
            kind: NoteKind::Error,
            key: ERROR_INVALID_CONFIG,
            text,
        });
    }
}
