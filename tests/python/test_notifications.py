# SPDX-License-Identifier: Apache-2.0
"""Notifications: whole, in order, each once."""

from __future__ import annotations

import os
import threading

import pytest
import tidewire


def test_notifications_arrive_whole_and_in_order(pair):
    a, b = pair
    messages = [(f"name {i}", os.urandom(i * 37 % 1000)) for i in range(100)]
    messages += [("NULs", b"a\0b\0\0"), ("", b""), ("ümläut", bytes(65_536))]
    for name, message in messages:
        a.notify(b.address, name, message)
    received = b.notifications()
    assert [(item.name, item.message) for item in received] == messages
    assert {item.sender for item in received} == {a.address}
    assert b.notifications() == [] == b.notifications(timeout=0.01)


def test_a_notification_to_oneself_and_one_that_is_too_large(pair):
    a, _ = pair
    a.notify(a.address, "self", b"hello")
    assert a.notifications(timeout=30)[0].message == b"hello"
    for send in [
        lambda: a.notify(a.address, "large", bytes(65_537)),
        lambda: a.write(a.address, [], [], [], notify=("large", bytes(65_537))),
        lambda: a.notify(a.address, "nul\0name", b""),
    ]:
        with pytest.raises(tidewire.InvalidArgumentError):
            send()
    assert a.notifications() == []


def test_a_waiting_receiver_is_woken(pair):
    a, b = pair
    received = []
    thread = threading.Thread(target=lambda: received.extend(b.notifications(timeout=60)))
    thread.start()
    a.notify(b.address, "wake", b"up")
    thread.join(60)
    assert [item.name for item in received] == ["wake"]


def test_senders_in_many_threads_lose_and_double_nothing(pair):
    a, b = pair
    senders, each = 8, 200

    def send(sender):
        for index in range(each):
            a.notify(b.address, str(sender), str(index).encode())

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(senders)]
    for thread in threads:
        thread.start()
    received = []
    while len(received) < senders * each:
        found = b.notifications(timeout=30)
        assert found, f"{len(received)} of {senders * each} came"
        received.extend(found)
    for thread in threads:
        thread.join()
    assert b.notifications() == []
    for sender in range(senders):
        assert [int(item.message) for item in received if item.name == str(sender)] == list(range(each))
