//! Key material at rest: the root of derived keys and the ledger's signing seed, files of 32 bytes.
//!
//! Promise: never generated over a store that isn't empty, never logged, never in the database. Folder 0700,
//! files 0600, created exclusively and synced.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use exeat_core::key::Root;
use exeat_core::ledger::LedgerKey;
use exeat_core::ports::Entropy;
use zeroize::Zeroizing;

/// Key material, read.
pub(crate) struct Keys {
    pub(crate) root: Root,
    pub(crate) ledger: LedgerKey,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoKeys {
    /// It isn't there, though the store isn't empty.
    #[error("{} is missing, and the store isn't empty", .0.display())]
    Missing(PathBuf),
    /// It isn't 32 bytes.
    #[error("{} isn't key material: 32 bytes are expected", .0.display())]
    Malformed(PathBuf),
    /// Others may read it.
    #[error("{} may be read by others; its mode must be 0600", .0.display())]
    Exposed(PathBuf),
    /// It can't be read or written.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
}

/// What the store says about key material.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreIs {
    /// New: key material may be made.
    Empty,
    /// In use: key material must be there.
    InUse,
}

impl Keys {
    /// Where the key material of a data folder lies.
    pub(crate) fn files(data: &Path) -> Vec<PathBuf> {
        ["root-1", "ledger-1"].iter().map(|name| data.join("keys").join(name)).collect()
    }

    /// Reads the key material of a data folder, or makes it where nothing depends on it yet.
    pub(crate) fn of(data: &Path, store: StoreIs, entropy: &dyn Entropy) -> Result<Self, NoKeys> {
        let folder = data.join("keys");
        if store == StoreIs::Empty {
            let made = DirBuilder::new().mode(0o700).recursive(true).create(&folder);
            made.map_err(|e| NoKeys::Io(folder.clone(), e))?;
        }
        let root = secret(&folder.join("root-1"), store, entropy)?;
        let seed = secret(&folder.join("ledger-1"), store, entropy)?;
        Ok(Self { root: Root::of(root), ledger: LedgerKey::of_seed(&seed) })
    }
}

fn secret(path: &Path, store: StoreIs, entropy: &dyn Entropy) -> Result<Zeroizing<[u8; 32]>, NoKeys> {
    match File::open(path) {
        Ok(file) => read(path, file),
        Err(e) if e.kind() == io::ErrorKind::NotFound && store == StoreIs::Empty => {
            let bytes = Zeroizing::new(entropy.seed());
            write_secret(path, bytes.as_slice()).map_err(|e| NoKeys::Io(path.to_owned(), e))?;
            Ok(bytes)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(NoKeys::Missing(path.to_owned())),
        Err(e) => Err(NoKeys::Io(path.to_owned(), e)),
    }
}

fn read(path: &Path, file: File) -> Result<Zeroizing<[u8; 32]>, NoKeys> {
    let io_error = |e| NoKeys::Io(path.to_owned(), e);
    let mode = file.metadata().map_err(io_error)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(NoKeys::Exposed(path.to_owned()));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(64));
    file.take(64).read_to_end(&mut bytes).map_err(io_error)?;
    let array: [u8; 32] = bytes.as_slice().try_into().map_err(|_| NoKeys::Malformed(path.to_owned()))?;
    Ok(Zeroizing::new(array))
}

/// Writes a secret that isn't there yet: 0600, exclusively, synced with its folder.
pub(crate) fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::system::SystemEntropy;

    #[test]
    fn key_material_is_made_once_and_never_over_a_store_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let of = |store| Keys::of(folder.path(), store, &SystemEntropy).map(|k| k.root.check());
        assert!(matches!(of(StoreIs::InUse), Err(NoKeys::Missing(_))));
        let first = of(StoreIs::Empty).unwrap();
        assert_eq!(of(StoreIs::InUse).unwrap(), first);
        assert_eq!(of(StoreIs::Empty).unwrap(), first);
        let root = folder.path().join("keys/root-1");
        let mode = std::fs::metadata(&root).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(of(StoreIs::InUse), Err(NoKeys::Exposed(_))));
        std::fs::remove_file(&root).unwrap();
        write_secret(&root, b"short").unwrap();
        assert!(matches!(of(StoreIs::InUse), Err(NoKeys::Malformed(_))));
    }
}
