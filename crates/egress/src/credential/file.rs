//! Secrets in files: beneath one folder per org, no way out of it, no links.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::{LONGEST_SECRET, Why};

/// Reads the secret at `path` (plain names joined by `/`) beneath `folder`, less one line end. Blocks.
///
/// # Errors
/// [`Why`]; a link anywhere on the way is [`Why::NotFound`].
pub(super) fn read(folder: &Path, path: &str) -> Result<SecretString, Why> {
    let mut at = folder.to_path_buf();
    not_a_link(&at, Expect::Folder)?;
    let names: Vec<_> = path.split('/').collect();
    if names.iter().any(|n| n.is_empty() || n.starts_with('.') || n.contains(['\\', '\0'])) {
        return Err(Why::NotFound);
    }
    let (last, folders) = names.split_last().ok_or(Why::NotFound)?;
    for name in folders {
        at.push(name);
        not_a_link(&at, Expect::Folder)?;
    }
    at.push(last);
    let seen = not_a_link(&at, Expect::File)?;
    let file = File::open(&at).map_err(|_| Why::NotFound)?;
    // What was opened must be what was looked at: nothing was swapped in between.
    if !same(&seen, &file.metadata().map_err(|_| Why::NotFound)?) {
        return Err(Why::NotFound);
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST_SECRET + 3));
    let most = u64::try_from(LONGEST_SECRET + 3).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut bytes).map_err(|_| Why::NotFound)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| Why::NotText)?;
    let text = text.strip_suffix('\n').map_or(text, |t| t.strip_suffix('\r').unwrap_or(t));
    if text.len() > LONGEST_SECRET { Err(Why::TooLong) } else { Ok(SecretString::from(text)) }
}

enum Expect {
    Folder,
    File,
}

fn not_a_link(at: &Path, expect: Expect) -> Result<fs::Metadata, Why> {
    let meta = fs::symlink_metadata(at).map_err(|_| Why::NotFound)?;
    let fits = match expect {
        Expect::Folder => meta.is_dir(),
        // Not a pipe or device either: opening one could hang.
        Expect::File => meta.is_file(),
    };
    if fits { Ok(meta) } else { Err(Why::NotFound) }
}

#[cfg(unix)]
fn same(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn same(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    a.len() == b.len() && a.modified().ok() == b.modified().ok()
}
