"""How a sequence leaves: out of the queue it stands in, its blocks given back."""

from engine.errors import RequestFailedError
from engine.kv.block_manager import BlockManager
from engine.messages import ChoiceOutput
from engine.request_ledger import RequestLedger, RequestRecord
from engine.running_set import RunningSet
from engine.sequence import Sequence, SequenceStatus
from engine.waiting_queue import WaitingQueue


class Departures:
    """The one way out for whoever waits or runs.

    Args:
        waiting, running, blocks, ledger: the scheduler's own.
    """

    def __init__(self, waiting: WaitingQueue, running: RunningSet, blocks: BlockManager, ledger: RequestLedger) -> None:
        self._waiting = waiting
        self._running = running
        self._blocks = blocks
        self._ledger = ledger

    def leave(self, seq: Sequence, *, is_faulty: bool = False) -> None:
        """Take a sequence out of the queue it stands in; a running one gives its blocks back."""
        if seq.status is not SequenceStatus.RUNNING:
            self._waiting.remove(seq)
            return
        self._running.remove(seq, num_seats=self._ledger.records[seq.request_id].num_seats)
        self._blocks.release(seq, is_faulty=is_faulty)

    def withdraw(self, record: RequestRecord, *, is_faulty: bool = False) -> None:
        """Let all choices of a request leave."""
        for seq in record.unfinished:
            self.leave(seq, is_faulty=is_faulty)

    def fail(self, record: RequestRecord, message: str) -> list[ChoiceOutput]:
        """End a request for a fault of ours; return the outputs that say so."""
        self.withdraw(record, is_faulty=True)
        return self._ledger.fail(record, error_type=RequestFailedError.error_type, message=message)
