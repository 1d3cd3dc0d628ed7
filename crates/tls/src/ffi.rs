//! What OpenSSL has for external keys of TLS 1.3, and the crates `openssl` and `openssl-sys` do not: the functions of
//! *SSL_CTX_set_psk_use_session_callback(3)*, *SSL_CTX_set_psk_find_session_callback(3)*,
//! *SSL_SESSION_set1_master_key(3)*, *SSL_CIPHER_find(3)*, *SSL_key_update(3)* and *SSL_CTX_set_info_callback(3)*.
//!
//! All unsafe code of this crate is here. Everything else goes through `openssl`.

use crate::limits::IDENTITIES_MAX;
use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslContextBuilder, SslRef, SslSession, SslStream};
use openssl_sys::{EVP_MD, SSL, SSL_CIPHER, SSL_CTX, SSL_CTX_ctrl, SSL_SESSION};
use std::ffi::{c_int, c_long, c_uchar};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use strake_nvme_auth::{Psk, PskHash};

type UseSession = unsafe extern "C" fn(
    *mut SSL,
    *const EVP_MD,
    *mut *const c_uchar,
    *mut usize,
    *mut *mut SSL_SESSION,
) -> c_int;
type FindSession =
    unsafe extern "C" fn(*mut SSL, *const c_uchar, usize, *mut *mut SSL_SESSION) -> c_int;
type Info = unsafe extern "C" fn(*const SSL, c_int, c_int);

// These are in libssl, to which openssl-sys links, as openssl/ssl.h of OpenSSL 3 declares them.
unsafe extern "C" {
    fn SSL_CTX_set_psk_use_session_callback(ctx: *mut SSL_CTX, callback: Option<UseSession>);
    fn SSL_CTX_set_psk_find_session_callback(ctx: *mut SSL_CTX, callback: Option<FindSession>);
    fn SSL_CTX_set_info_callback(ctx: *mut SSL_CTX, callback: Option<Info>);
    fn SSL_SESSION_new() -> *mut SSL_SESSION;
    fn SSL_SESSION_set1_master_key(
        to: *mut SSL_SESSION,
        key: *const c_uchar,
        bytes: usize,
    ) -> c_int;
    fn SSL_SESSION_set_cipher(to: *mut SSL_SESSION, cipher: *const SSL_CIPHER) -> c_int;
    fn SSL_SESSION_set_protocol_version(to: *mut SSL_SESSION, version: c_int) -> c_int;
    fn SSL_CIPHER_find(ssl: *mut SSL, number: *const c_uchar) -> *const SSL_CIPHER;
    fn SSL_key_update(ssl: *mut SSL, kind: c_int) -> c_int;
}

/// `TLS1_3_VERSION` of openssl/tls1.h.
const TLS_1_3: c_int = 0x0304;
/// `SSL_CB_ALERT`, and what tells those that came from those that went, of openssl/ssl.h.
const ALERT: c_int = 0x4000;
const READ: c_int = 0x04;
/// `SSL_CTRL_CLEAR_MODE` and `SSL_MODE_AUTO_RETRY`, of openssl/ssl.h.
const CLEAR_MODE: c_int = 78;
const AUTO_RETRY: c_long = 4;
/// `SSL_KEY_UPDATE_NOT_REQUESTED` and `SSL_KEY_UPDATE_REQUESTED`.
const ONLY_OURS: c_int = 0;
const BOTH: c_int = 1;

/// What goes with a connection: the key that is used for it, and what OpenSSL reports of it on the way.
#[derive(Default)]
pub(crate) struct Notes {
    /// The identity, and the key in the form in which OpenSSL takes one.
    key: Option<(String, SslSession)>,
    /// What the other side called its keys, where that was not the identity.
    pub(crate) unknown: Vec<Vec<u8>>,
    /// The alert that we sent.
    pub(crate) said: Option<u8>,
    /// The alert that we were sent.
    pub(crate) reported: Option<u8>,
}

fn index() -> Result<Index<Ssl, Notes>, ErrorStack> {
    static INDEX: OnceLock<Result<Index<Ssl, Notes>, ErrorStack>> = OnceLock::new();
    INDEX.get_or_init(Ssl::new_ex_index).clone()
}

/// What is known of a connection; `None` when nothing was attached to it.
pub(crate) fn notes(ssl: &SslRef) -> Option<&Notes> {
    ssl.ex_data(index().ok()?)
}

/// Has a connection use this key, or see which ones the other side has.
pub(crate) fn attach(ssl: &mut Ssl, psk: Option<&Psk>) -> Result<(), ErrorStack> {
    let key = match psk {
        Some(psk) => Some((psk.identity.clone(), session_of(ssl, psk)?)),
        None => None,
    };
    ssl.set_ex_data(index()?, Notes { key, ..Notes::default() });
    Ok(())
}

fn done(code: c_int) -> Result<(), ErrorStack> {
    if code == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

/// A key as OpenSSL takes one: as a session that both sides would know from before.
fn session_of(ssl: &SslRef, psk: &Psk) -> Result<SslSession, ErrorStack> {
    let number: [u8; 2] = match psk.hash {
        PskHash::Sha256 => [0x13, 1],
        PskHash::Sha384 => [0x13, 2],
    };
    // SAFETY: It takes nothing. What it gives is ours, or null.
    let new = unsafe { SSL_SESSION_new() };
    if new.is_null() {
        return Err(ErrorStack::get());
    }
    // SAFETY: The session is ours and was just made, and no other code frees it.
    let session = unsafe { SslSession::from_ptr(new) };
    // SAFETY: `session` and `ssl` live as long as these calls. The key is copied, of as many bytes as there are. The
    // number has the two bytes that are read, and the cipher, which is checked for null, lives as long as the library.
    unsafe {
        done(SSL_SESSION_set1_master_key(new, psk.secret.as_ptr(), psk.secret.len()))?;
        let cipher = SSL_CIPHER_find(ssl.as_ptr(), number.as_ptr());
        if cipher.is_null() {
            return Err(ErrorStack::get());
        }
        done(SSL_SESSION_set_cipher(new, cipher))?;
        done(SSL_SESSION_set_protocol_version(new, TLS_1_3))?;
    }
    Ok(session)
}

/// Has the connections of a context ask for keys, report alerts, and return from a read after each message that is no
/// data. Otherwise one record with many session tickets would occupy a core for milliseconds.
pub(crate) fn listen(context: &mut SslContextBuilder) {
    // SAFETY: The context lives as long as these calls, and the functions as long as the program.
    unsafe {
        SSL_CTX_set_psk_use_session_callback(context.as_ptr(), Some(offer));
        SSL_CTX_set_psk_find_session_callback(context.as_ptr(), Some(find));
        SSL_CTX_set_info_callback(context.as_ptr(), Some(hear));
        SSL_CTX_ctrl(context.as_ptr(), CLEAR_MODE, AUTO_RETRY, std::ptr::null_mut());
    }
}

/// Sends with other keys from the next record on; the other side continues with its own, unless `both`.
pub(crate) fn change_keys<S>(stream: &mut SslStream<S>, both: bool) -> Result<(), ErrorStack> {
    let kind = if both { BOTH } else { ONLY_OURS };
    // SAFETY: The connection lives as long as this call, and no other code uses it meanwhile.
    done(unsafe { SSL_key_update(stream.ssl().as_ptr(), kind) })
}

/// What is known of a connection in a call of OpenSSL's.
///
/// # Safety
/// `ssl` must be what OpenSSL gave a callback, and what is returned must be gone before that returns.
unsafe fn notes_of<'a>(ssl: *mut SSL) -> Option<&'a mut Notes> {
    // SAFETY: OpenSSL calls with a connection that lives. The caller of OpenSSL has it exclusively and uses nothing of
    // it before that returns, so no other reference to its notes exists.
    unsafe { SslRef::from_ptr_mut(ssl) }.ex_data_mut(index().ok()?)
}

/// A reference to a session that OpenSSL frees.
fn own(key: &SslSession) -> *mut SSL_SESSION {
    ManuallyDrop::new(key.clone()).as_ptr()
}

/// A client is asked for its key.
unsafe extern "C" fn offer(
    ssl: *mut SSL,
    _hash: *const EVP_MD,
    identity: *mut *const c_uchar,
    identity_bytes: *mut usize,
    session: *mut *mut SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL called, with places for three values. It copies the identity, which stays as long as the
    // connection, and frees the session, to which it is given a reference of its own. Nothing here panics.
    unsafe {
        *session = std::ptr::null_mut();
        if let Some((name, key)) = notes_of(ssl).and_then(|notes| notes.key.as_ref()) {
            *identity = name.as_ptr();
            *identity_bytes = name.len();
            *session = own(key);
        }
    }
    1
}

/// A server is asked for the key that a client calls `identity`. Without one it continues to the next that the client
/// offers.
unsafe extern "C" fn find(
    ssl: *mut SSL,
    identity: *const c_uchar,
    identity_bytes: usize,
    session: *mut *mut SSL_SESSION,
) -> c_int {
    // SAFETY: OpenSSL called, with as many bytes as it says, which are there until this returns, and a place for a
    // session, which it frees: it is given a reference of its own. Nothing here panics.
    unsafe {
        *session = std::ptr::null_mut();
        let Some(notes) = notes_of(ssl).filter(|_| !identity.is_null()) else { return 1 };
        let identity = std::slice::from_raw_parts(identity, identity_bytes);
        match &notes.key {
            Some((known, key)) if known.as_bytes() == identity => *session = own(key),
            _ if notes.unknown.len() < IDENTITIES_MAX => notes.unknown.push(identity.to_vec()),
            _ => {}
        }
    }
    1
}

/// Something happened; alerts are of interest, other than that all was said.
unsafe extern "C" fn hear(ssl: *const SSL, what: c_int, value: c_int) {
    let number = value as u8;
    if what & ALERT == 0 || number == 0 {
        return;
    }
    // SAFETY: OpenSSL called, and the notes are gone when this returns. Nothing here panics.
    if let Some(notes) = unsafe { notes_of(ssl.cast_mut()) } {
        *if what & READ == 0 { &mut notes.said } else { &mut notes.reported } = Some(number);
    }
}
