//! Who may read the data folder.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::Check;

/// Files that nobody but their owner may read, and folders.
const SECRET: [&str; 6] = ["", "keys", "keys/root-1", "keys/ledger-1", "admin.key", "approver.key"];

/// The folder that is meant: the one given, or for a server on this machine the usual one, if it is there.
fn folder(given: Option<&Path>, here: bool) -> Option<PathBuf> {
    let usual = || {
        let dir = std::env::var_os("EXEAT_DATA").filter(|d| !d.is_empty());
        let dir = PathBuf::from(dir.unwrap_or_else(|| "exeat-data".into()));
        (here && dir.is_dir()).then_some(dir)
    };
    given.map(Path::to_owned).or_else(usual)
}

/// The check of the files' modes; none if no folder is at hand.
pub(super) fn modes(given: Option<&Path>, here: bool) -> Option<Check> {
    let dir = folder(given, here)?;
    let at = |name: &str| if name.is_empty() { dir.clone() } else { dir.join(name) };
    let shown = dir.display();
    if !dir.join("keys").is_dir() {
        let why = format!("{shown} isn't a data folder: it has no keys/");
        return Some(Check::fail("files", why, "name the folder that `exeat serve --data` has"));
    }
    let open: Vec<String> = SECRET
        .iter()
        .map(|name| at(name))
        .filter(|path| std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o077 != 0))
        .map(|path| path.display().to_string())
        .collect();
    Some(if open.is_empty() {
        Check::ok("files", format!("only their owner may read what is secret in {shown}"))
    } else {
        let open = open.join(" ");
        Check::fail("files", format!("others may look into {open}"), format!("chmod go= {open}"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_named_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(dir.path(), 0o700);
        let keys = dir.path().join("keys");
        assert_eq!(modes(Some(dir.path()), false).unwrap().status, Status::Fail);
        std::fs::create_dir(&keys).unwrap();
        mode(&keys, 0o700);
        let root = keys.join("root-1");
        std::fs::write(&root, "x").unwrap();
        mode(&root, 0o600);
        assert_eq!(modes(Some(dir.path()), false).unwrap().status, Status::Ok);
        mode(&root, 0o640);
        let check = modes(Some(dir.path()), false).unwrap();
        assert_eq!((check.status, check.next), (Status::Fail, format!("chmod go= {}", root.display())));
    }
}
