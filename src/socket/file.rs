//! The file of a Unix socket: made by binding, in place of one that nobody listens on any more, and removed in the end.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use socket2::{Domain, SockAddr, Socket, Type};

use super::StdListener;

/// A socket's file. It is removed when this is dropped, unless another has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: Arc<Path>,
    /// Device and inode: which file it is.
    id: (u64, u64),
}

impl SocketFile {
    /// Binds and listens. `mode` says who may connect; nobody can before it is set, since nobody listens yet.
    ///
    /// # Errors
    /// When somebody listens there, when the path is something else's, and the system's.
    pub fn bind(path: &Arc<Path>, mode: u32) -> io::Result<(Self, StdListener)> {
        clear(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let metadata = fs::symlink_metadata(path)?;
        let file = Self { path: Arc::clone(path), id: (metadata.dev(), metadata.ino()) };
        file.set_mode(mode)?;
        socket.listen(super::BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok((file, StdListener::Unix(UnixListener::from(socket))))
    }

    /// Says anew who may connect.
    ///
    /// # Errors
    /// When the file is no longer ours.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(&self.path, Permissions::from_mode(mode))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        if ours {
            // If it can't be removed, the next start will find that nobody listens there.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes what a process that ended badly left behind. Only a socket, and only one that refuses to be connected to.
fn clear(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    // Not `UnixStream::connect`, which waits for a place in the queue of a process that has stopped accepting.
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?).map_err(|error| (error.kind(), error)) {
        Ok(()) | Err((io::ErrorKind::WouldBlock, _)) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "address in use: somebody listens there"))
        }
        Err((io::ErrorKind::ConnectionRefused, _)) => fs::remove_file(path),
        // Gone meanwhile.
        Err((io::ErrorKind::NotFound, _)) => Ok(()),
        Err((_, error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_socket_file_lives_as_long_as_its_owner() {
        let dir = tempfile::TempDir::new().unwrap();
        let path: Arc<Path> = dir.path().join("s").into();
        let (file, listener) = SocketFile::bind(&path, 0o660).unwrap();
        assert_eq!(mode(&path), 0o660);
        file.set_mode(0o600).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(SocketFile::bind(&path, 0o660).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop((file, listener));
        assert!(!path.exists());
    }

    #[test]
    fn a_process_that_has_stopped_accepting_still_listens() {
        let dir = tempfile::TempDir::new().unwrap();
        let path: Arc<Path> = dir.path().join("s").into();
        let stuck = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        stuck.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        stuck.listen(0).unwrap();
        let _waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
        assert_eq!(SocketFile::bind(&path, 0o660).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_file_that_nobody_listens_on_is_replaced_and_anything_else_is_not() {
        let dir = tempfile::TempDir::new().unwrap();
        let path: Arc<Path> = dir.path().join("s").into();
        drop(UnixListener::bind(&path).unwrap());
        let (stale, _listener) = SocketFile::bind(&path, 0o660).unwrap();
        // Another has taken its place: it is not ours to remove.
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(stale);
        assert!(path.exists());
        let plain: Arc<Path> = dir.path().join("plain").into();
        fs::write(&plain, "x").unwrap();
        assert_eq!(SocketFile::bind(&plain, 0o660).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&plain).unwrap(), b"x");
    }
}
