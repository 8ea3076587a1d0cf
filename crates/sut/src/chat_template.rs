//! Messages to one prompt, by the Jinja template that the model brings.
//!
//! The environment is what Hugging Face's `apply_chat_template` offers: blocks trimmed, Python's
//! string methods, `raise_exception`, `strftime_now` left out. A template's own refusal is the
//! client's error, not the server's.
//!
//! Source: `transformers/utils/chat_template_utils.py`.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value, context};

use crate::error::SutError;

/// For the echo backend, which has no model to bring a template.
const PLAIN: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\
                     {% if add_generation_prompt %}assistant: {% endif %}";

/// Instructions a rendering may take, some tenths of a second. A template comes with a model from
/// anywhere, and it runs on a network thread: one that loops for ever would stop the server.
const MAX_INSTRUCTIONS: u64 = 10_000_000;

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Who speaks.
    pub role: String,
    /// What is said.
    pub content: String,
    /// Which of several speakers of that role.
    pub name: Option<String>,
}

/// A compiled template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

/// Why a conversation could not be rendered.
#[derive(Debug, thiserror::Error)]
#[error("messages: {0}")]
pub struct RenderError(String);

impl ChatTemplate {
    /// Compiles `source`; `bos` and `eos` are the texts of the model's start and end tokens.
    ///
    /// # Errors
    /// [`SutError::ChatTemplate`] when it is no valid template.
    pub fn compile(source: &str, bos: &str, eos: &str, model: &str) -> Result<Self, SutError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .expect("Jinja's own delimiters do not clash");
        environment.set_syntax(syntax);
        environment.set_fuel(Some(MAX_INSTRUCTIONS));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment
            .add_template_owned("chat", source.to_owned())
            .map_err(|e| SutError::ChatTemplate {
                model: model.to_owned(),
                problem: one_line(&e),
            })?;
        Ok(ChatTemplate {
            environment,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
        })
    }

    /// The template used where there is no model: `role: text`, a line each.
    ///
    /// # Panics
    /// Never: the template is a constant.
    #[must_use]
    pub fn plain() -> Self {
        Self::compile(PLAIN, "", "", "echo").expect("the built-in template is valid")
    }

    /// The prompt that makes the model answer as the assistant.
    ///
    /// # Errors
    /// [`RenderError`] when the template refuses the messages or cannot handle them.
    pub fn render(&self, turns: &[Turn]) -> Result<String, RenderError> {
        let messages: Vec<Value> = turns.iter().map(turn_value).collect();
        let context = context! {
            messages,
            add_generation_prompt => true,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let template = self
            .environment
            .get_template("chat")
            .map_err(|e| refused(&e))?;
        template.render(context).map_err(|e| refused(&e))
    }
}

fn turn_value(turn: &Turn) -> Value {
    let Turn {
        role,
        content,
        name,
    } = turn;
    match name {
        Some(name) => context! { role, content, name },
        None => context! { role, content },
    }
}

fn raise_exception(message: String) -> Result<String, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

fn refused(error: &minijinja::Error) -> RenderError {
    RenderError(
        error
            .detail()
            .map_or_else(|| one_line(error), str::to_owned),
    )
}

fn one_line(error: &minijinja::Error) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(role: &str, content: &str) -> Turn {
        Turn {
            role: role.to_owned(),
            content: content.to_owned(),
            name: None,
        }
    }

    fn check(template: &str, turns: &[Turn], expected: &str) {
        let template = ChatTemplate::compile(template, "<s>", "</s>", "m").unwrap();
        let shown = template.render(turns).unwrap_or_else(|e| e.to_string());
        assert_eq!(shown, expected);
    }

    #[test]
    fn templates_as_models_write_them() {
        let hello = [turn("user", "Hi ")];
        check(
            "{{ bos_token }}{% for message in messages %}\n{{ message['role'] }}|\
             {{ message.content | trim }}{{ eos_token }}\n{% endfor %}",
            &hello,
            "<s>user|Hi</s>\n",
        );
        // Python methods, and a namespace that outlives a loop.
        check(
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}\
             {% endfor %}{{ ns.n }}{{ messages[0]['content'].strip() }}",
            &hello,
            "1Hi",
        );
        check(
            "{% if messages[0]['role'] != 'system' %}{{ raise_exception('system first') }}\
             {% endif %}",
            &hello,
            "messages: system first",
        );
    }

    #[test]
    fn a_template_that_loops_for_ever_is_stopped() {
        check(
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            &[turn("user", "Hi")],
            "messages: engine ran out of fuel (in chat:1)",
        );
    }

    #[test]
    fn the_plain_template_and_a_broken_one() {
        let turns = [turn("system", "Be brief."), turn("user", "Hi")];
        assert_eq!(
            ChatTemplate::plain().render(&turns).unwrap(),
            "system: Be brief.\nuser: Hi\nassistant: "
        );
        let broken = ChatTemplate::compile("{% for %}", "", "", "m")
            .unwrap_err()
            .to_string();
        assert!(
            broken.starts_with("chat template of m: syntax error"),
            "{broken}"
        );
    }
}
