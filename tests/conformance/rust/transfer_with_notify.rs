// SPDX-License-Identifier: Apache-2.0
//
// A Rust program that calls libtidewire.so through Mooncake's C names alone: no crate, no bindings but those below. It does what
// ../c/transfer_with_notify.c does, and each can be the other's peer: run as "target" it prints its address and buffer and waits for two
// notifications; run as "initiator ADDRESS BUFFER" it writes a pattern and sends them.

use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};
use std::process::exit;
use std::thread::sleep;
use std::time::Duration;

// include/tidewire/transfer_engine_c.h
type Engine = *mut c_void;
const INVALID_BATCH: u64 = u64::MAX;
const OPCODE_WRITE: c_int = 1;
const STATUS_PENDING: c_int = 1;
const STATUS_COMPLETED: c_int = 4;
const BATCH_BUSY: c_int = 4;

#[repr(C)]
struct TransferRequest {
    opcode: c_int,
    source: *mut c_void,
    target_id: i32,
    target_offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct TransferStatus {
    status: c_int,
    transferred_bytes: u64,
}

#[repr(C)]
struct NotifyMsg {
    name: *mut c_char,
    msg: *mut c_char,
}

#[link(name = "tidewire")]
extern "C" {
    fn createTransferEngine(
        metadata: *const c_char,
        local_name: *const c_char,
        host: *const c_char,
        port: u64,
        auto_discover: c_int,
    ) -> Engine;
    fn destroyTransferEngine(engine: Engine);
    fn getLocalIpAndPort(engine: Engine, out: *mut c_char, length: usize) -> c_int;
    fn registerLocalMemory(
        engine: Engine,
        address: *mut c_void,
        length: usize,
        location: *const c_char,
        remote: c_int,
    ) -> c_int;
    fn unregisterLocalMemory(engine: Engine, address: *mut c_void) -> c_int;
    fn openSegment(engine: Engine, name: *const c_char) -> i32;
    fn closeSegment(engine: Engine, segment: i32) -> c_int;
    fn allocateBatchID(engine: Engine, size: usize) -> u64;
    fn submitTransfer(engine: Engine, batch: u64, entries: *mut TransferRequest, count: usize) -> c_int;
    fn submitTransferWithNotify(
        engine: Engine,
        batch: u64,
        entries: *mut TransferRequest,
        count: usize,
        message: NotifyMsg,
    ) -> c_int;
    fn getTransferStatus(engine: Engine, batch: u64, task: usize, status: *mut TransferStatus) -> c_int;
    fn freeBatchID(engine: Engine, batch: u64) -> c_int;
    fn genNotifyInEngine(engine: Engine, target: u64, message: NotifyMsg) -> c_int;
    fn getNotifsFromEngine(engine: Engine, count: *mut c_int) -> *mut NotifyMsg;
    fn freeNotifsMsgBuf(messages: *mut NotifyMsg, count: c_int) -> c_int;
}

const PART: usize = 1 << 20;
const PARTS: usize = 3;
const SIZE: usize = PARTS * PART;

fn byte_at(index: usize) -> u8 {
    ((index as u64).wrapping_mul(2654435761) >> 13) as u8
}

fn require(holds: bool, what: &str) {
    if !holds {
        eprintln!("{} failed", what);
        exit(1);
    }
}

fn pause() {
    sleep(Duration::from_millis(1));
}

fn text(value: &str) -> CString {
    CString::new(value).unwrap()
}

/// The library copies a message before the call returns.
fn message(name: &CString, msg: &CString) -> NotifyMsg {
    NotifyMsg { name: name.as_ptr() as *mut c_char, msg: msg.as_ptr() as *mut c_char }
}

fn target(engine: Engine, buffer: *const u8) {
    let mut address = [0 as c_char; 256];
    require(unsafe { getLocalIpAndPort(engine, address.as_mut_ptr(), address.len()) } == 0, "getLocalIpAndPort");
    println!("{} {}", unsafe { CStr::from_ptr(address.as_ptr()) }.to_str().unwrap(), buffer as usize);
    let mut received = Vec::new();
    for _ in 0..60_000 {
        let mut count = 0;
        let messages = unsafe { getNotifsFromEngine(engine, &mut count) };
        for index in 0..count as usize {
            let one = unsafe { &*messages.add(index) };
            let (name, msg) = unsafe { (CStr::from_ptr(one.name), CStr::from_ptr(one.msg)) };
            received.push(format!("{}={}", name.to_str().unwrap(), msg.to_str().unwrap()));
            // The peer wrote these bytes behind the compiler's back.
            let whole = (0..SIZE).all(|at| unsafe { buffer.add(at).read_volatile() } == byte_at(at));
            require(whole, "the data before its notification");
        }
        if !messages.is_null() {
            require(unsafe { freeNotifsMsgBuf(messages, count) } == 0, "freeNotifsMsgBuf");
        }
        if received.len() >= 2 {
            require(received == ["request-1=kv ready", "request-2="], "the notifications' texts");
            println!("received");
            return;
        }
        pause();
    }
    require(false, "waiting for the notifications");
}

fn completed(engine: Engine, batch: u64, task: usize) -> bool {
    let mut status = TransferStatus::default();
    loop {
        if unsafe { getTransferStatus(engine, batch, task, &mut status) } != 0 {
            return false;
        }
        if status.status > STATUS_PENDING {
            return status.status == STATUS_COMPLETED && status.transferred_bytes == PART as u64;
        }
        pause();
    }
}

fn initiator(engine: Engine, buffer: *mut u8, address: &str, base: u64) {
    let segment = unsafe { openSegment(engine, text(address).as_ptr()) };
    require(segment >= 0, "openSegment");
    for at in 0..SIZE {
        unsafe { buffer.add(at).write_volatile(byte_at(at)) };
    }
    let batch = unsafe { allocateBatchID(engine, 1024) };
    require(batch != INVALID_BATCH, "allocateBatchID");
    let mut requests: Vec<TransferRequest> = (0..PARTS)
        .map(|part| TransferRequest {
            opcode: OPCODE_WRITE,
            source: unsafe { buffer.add(part * PART) } as *mut c_void,
            target_id: segment,
            target_offset: base + (part * PART) as u64,
            length: PART as u64,
        })
        .collect();
    require(unsafe { submitTransfer(engine, batch, requests.as_mut_ptr(), 1) } == 0, "submitTransfer");
    require(completed(engine, batch, 0), "the first transfer");
    let rest = &mut requests[1..];
    let ready = (text("request-1"), text("kv ready"));
    let code = unsafe {
        submitTransferWithNotify(engine, batch, rest.as_mut_ptr(), rest.len(), message(&ready.0, &ready.1))
    };
    require(code == 0, "submitTransferWithNotify");
    require((1..PARTS).all(|task| completed(engine, batch, task)), "the transfers with a notification");
    let freed = loop {
        match unsafe { freeBatchID(engine, batch) } {
            BATCH_BUSY => pause(),
            code => break code,
        }
    };
    require(freed == 0, "freeBatchID");
    let more = (text("request-2"), text(""));
    require(unsafe { genNotifyInEngine(engine, segment as u64, message(&more.0, &more.1)) } == 0, "genNotifyInEngine");
    require(unsafe { freeBatchID(engine, batch) } != 0, "refusing a batch that is freed");
    require(unsafe { closeSegment(engine, segment) } == 0, "closeSegment");
}

fn main() {
    let (metadata, name, empty, location) = (text("P2PHANDSHAKE"), text("127.0.0.1"), text(""), text("cpu:0"));
    let engine = unsafe { createTransferEngine(metadata.as_ptr(), name.as_ptr(), empty.as_ptr(), 0, 1) };
    require(!engine.is_null(), "createTransferEngine");
    let mut memory = vec![0u8; SIZE];
    let buffer = memory.as_mut_ptr();
    let registered = unsafe { registerLocalMemory(engine, buffer as *mut c_void, SIZE, location.as_ptr(), 1) };
    require(registered == 0, "registerLocalMemory");
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("initiator") => initiator(engine, buffer, &arguments[2], arguments[3].parse().unwrap()),
        _ => target(engine, buffer),
    }
    require(unsafe { unregisterLocalMemory(engine, buffer as *mut c_void) } == 0, "unregisterLocalMemory");
    unsafe { destroyTransferEngine(engine) };
}
