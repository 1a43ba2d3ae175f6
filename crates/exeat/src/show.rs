//! What people and scripts see: the result on stdout, all else on stderr.
//!
//! Promises: with `--json` stdout is one JSON object on one line; piped output has no colours and no
//! frames; text that others wrote can't move the cursor of a terminal or hide a character in it.

pub(crate) mod escape;
pub(crate) mod table;
pub(crate) mod task;

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::Value;

use crate::failure::{Failure, Problem};
use escape::escaped;
use table::Style;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// How much is said on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volume {
    /// Progress is told.
    Normal,
    /// Only results and errors.
    Quiet,
}

/// The two streams of this process, and how to write to them.
#[derive(Clone, Debug)]
pub(crate) struct Show {
    format: Format,
    volume: Volume,
    out: Style,
    err: Style,
}

impl Show {
    /// Looks at the terminal and at `NO_COLOR` (<https://no-color.org>).
    pub(crate) fn new(format: Format, volume: Volume) -> Self {
        let colours = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        let style = |terminal: bool| match (terminal, colours) {
            (false, _) => Style::Plain,
            (true, false) => Style::Framed,
            (true, true) => Style::Coloured,
        };
        Self {
            format,
            volume,
            out: style(io::stdout().is_terminal()),
            err: style(io::stderr().is_terminal()),
        }
    }

    /// Is the result for a program?
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Writes a JSON object as one line on stdout.
    pub(crate) fn json(&self, value: &Value) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{value}")?;
        Ok(out.flush()?)
    }

    /// Writes text of ours on stdout.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    /// Writes text that others wrote on stdout: as it is into a pipe, escaped on a terminal.
    pub(crate) fn foreign_text(&self, text: &str) -> Result<(), Failure> {
        match self.out {
            Style::Plain => self.text(text),
            Style::Framed | Style::Coloured => self.text(&escaped(text)),
        }
    }

    /// Writes bytes on stdout as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        Ok(out.flush()?)
    }

    /// Gives the result: the object itself to a program, `text` to people.
    pub(crate) fn result(&self, object: &Value, text: impl FnOnce(Style) -> String) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.json(object),
            Format::Text => self.text(&text(self.out)),
        }
    }

    /// Does anybody want to know how it goes? Under `--json` stderr is for problems.
    pub(crate) fn tells(&self) -> bool {
        self.volume == Volume::Normal && self.format == Format::Text
    }

    /// Tells on stderr how it goes, if anybody wants to know.
    pub(crate) fn progress(&self, line: &str) {
        if self.tells() {
            self.note(line);
        }
    }

    /// Writes lines on stderr, whatever the volume.
    pub(crate) fn note(&self, text: &str) {
        // There is nowhere left to report that stderr is gone.
        let _ = writeln!(io::stderr().lock(), "{}", escaped(text));
    }

    /// Writes something to look at on stderr, beside the result; it escapes what others wrote itself.
    pub(crate) fn note_styled(&self, text: impl FnOnce(Style) -> String) {
        let _ = writeln!(io::stderr().lock(), "{}", text(self.err));
    }

    /// Writes the error: one line, or under `--json` the problem.
    pub(crate) fn problem(&self, problem: &Problem) {
        let line = match self.format {
            Format::Json => problem.value().to_string(),
            Format::Text => {
                let said = escaped(&problem.to_string()).replace('\n', " ");
                format!("{} {said}", self.err.alarm("error:"))
            }
        };
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}
