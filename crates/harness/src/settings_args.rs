//! LoadGen settings on the command line: rules of a round, configuration files, single values.
//!
//! Later ones win: defaults, round, user.conf, `--set`, audit.config, test 05.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use prony_loadgen::LoadgenError;
use prony_loadgen::conf::Configured;
use prony_loadgen::conf::apply::Target;
use prony_loadgen::conf::keys::ConfKind;
use prony_loadgen::conf::mlperf::{ROUNDS, Round, model_names};
use prony_loadgen::error::RefusedSetting;
use prony_loadgen::rng::StdlibFlavour;
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::validate;

use crate::error::HarnessError;
use crate::terminal;

/// Options of the verbs that take settings without a scenario file.
#[derive(Debug, Clone, clap::Args)]
pub struct SettingsArgs {
    /// Scenario
    #[arg(long, default_value = "SingleStream", value_parser = scenario_names())]
    scenario: String,
    /// Model whose rules apply, as mlperf.conf names it; brings in the rules of the round
    #[arg(long)]
    model: Option<String>,
    /// Round whose seeds and rules apply; without --round, --model and --user-conf none do
    #[arg(long, value_parser = round_names())]
    round: Option<String>,
    /// user.conf
    #[arg(long, value_name = "FILE")]
    user_conf: Option<PathBuf>,
    /// audit.config of a compliance test
    #[arg(long, value_name = "FILE")]
    audit_conf: Option<PathBuf>,
    /// Refuse configuration files with anything in them that LoadGen would pass over in silence
    #[arg(long)]
    strict: bool,
    /// A field of TestSettings, by its C++ or Python name; may be given again and again
    #[arg(long = "set", value_name = "NAME=VALUE")]
    assignments: Vec<String>,
    /// Samples of the data set
    #[arg(long, default_value_t = 1024)]
    pub qsl_total: u64,
    /// Samples that fit in memory at once [default: all of them]
    #[arg(long)]
    qsl_perf: Option<u64>,
    /// Standard library whose integer rule the sample order follows
    #[arg(long, default_value = "gcc11", value_parser = ["gcc10", "gcc11"])]
    stdlib: String,
}

fn scenario_names() -> PossibleValuesParser {
    Scenario::ALL.map(Scenario::conf_name).into()
}

fn round_names() -> PossibleValuesParser {
    ROUNDS.map(|round| round.name).into()
}

impl SettingsArgs {
    /// The settings, with their history.
    ///
    /// # Errors
    /// Files that cannot be read or are refused, and every bad `--set` at once.
    pub fn configure(&self) -> Result<Configured, HarnessError> {
        if let Some(note) = self.unknown_model() {
            terminal::note(&note);
        }
        let scenario = self.scenario();
        let mut configured = Configured::new(scenario);
        let target = Target {
            model: self.model.as_deref().unwrap_or("*"),
            scenario,
        };
        let round = self
            .round
            .as_deref()
            .and_then(Round::by_name)
            .unwrap_or(Round::CURRENT);
        match &self.user_conf {
            Some(path) if self.strict => {
                configured.apply_file_strictly(path, ConfKind::User, round, target)?;
            }
            Some(path) => configured.apply_file(path, ConfKind::User, round, target)?,
            None if self.model.is_some() || self.round.is_some() => {
                configured.apply_round(round, target);
            }
            None => {}
        }
        self.apply_assignments(&mut configured)?;
        self.apply_audit(&mut configured, target)?;
        Ok(configured)
    }

    /// A model that MLPerf has no rules for is allowed; a slip of the pen should be noticed.
    fn unknown_model(&self) -> Option<String> {
        let model = self.model.as_deref()?;
        if model == "*" || model_names().any(|known| known == model) {
            return None;
        }
        let known: Vec<&str> = model_names().collect();
        Some(format!(
            "note: model {model}: MLPerf has no rules of its own for it, those for every model \
             hold; it has some for {}",
            known.join(", ")
        ))
    }

    /// Samples that fit in memory at once.
    #[must_use]
    pub fn qsl_perf(&self) -> u64 {
        self.qsl_perf.unwrap_or(self.qsl_total)
    }

    /// The integer rule.
    #[must_use]
    pub fn stdlib(&self) -> StdlibFlavour {
        match self.stdlib.as_str() {
            "gcc10" => StdlibFlavour::Gcc10,
            _ => StdlibFlavour::Gcc11,
        }
    }

    /// Keys are looked up for the scenario of the run, so a `--set scenario=…` counts already here.
    fn scenario(&self) -> Scenario {
        let set = self.assignments.iter().rev().find_map(|a| {
            let (name, value) = a.split_once('=')?;
            (name.trim() == "scenario").then(|| value.trim())
        });
        let named = |name: &str| Scenario::ALL.into_iter().find(|s| s.conf_name() == name);
        set.and_then(named)
            .or_else(|| named(&self.scenario))
            .unwrap_or(Scenario::SingleStream)
    }

    fn apply_assignments(&self, configured: &mut Configured) -> Result<(), LoadgenError> {
        let mut refused: Vec<RefusedSetting> = self
            .assignments
            .iter()
            .filter_map(|a| configured.set(a).err())
            .collect();
        if refused.is_empty() {
            return Ok(());
        }
        // No plan will be made, so what is wrong with the other settings is told here or never.
        let others = validate(&configured.settings, self.qsl_total, self.qsl_perf());
        if let Err(LoadgenError::RefusedSettings(others)) = others {
            refused.extend(others);
        }
        Err(LoadgenError::RefusedSettings(refused))
    }

    /// An audit file that was asked for must be there and be good, which a found one need not.
    fn apply_audit(
        &self,
        configured: &mut Configured,
        target: Target<'_>,
    ) -> Result<(), LoadgenError> {
        if let Some(path) = &self.audit_conf {
            let any_model = Target {
                model: "*",
                ..target
            };
            let mut trial = Configured::new(target.scenario);
            if self.strict {
                trial.apply_file_strictly(path, ConfKind::Audit, Round::CURRENT, any_model)?;
            } else {
                trial.apply_file(path, ConfKind::Audit, Round::CURRENT, any_model)?;
            }
        }
        configured.apply_at_start(self.audit_conf.as_deref());
        Ok(())
    }
}
