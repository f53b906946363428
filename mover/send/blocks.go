package send

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lodestone-storage/lodestone/mover/content/blocks"
	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
)

// blocks sends the changes in large files.
func (r *run) blocks(conn *wire.Conn, source, target *tree.Manifest) error {
	var answer wire.BlocksResponse
	// The receiver answers questions about pages, one after another.
	answers, ended := make(chan []byte, 1), make(chan struct{})
	answered := func(payload []byte) error {
		select {
		case answers <- slices.Clone(payload):
			return nil
		default:
			return fmt.Errorf("%w: an answer that nobody asked for", wire.ErrLost)
		}
	}
	end := func() { close(ended) }
	err := conn.Do(wire.Call{Op: wire.OpBlocks, Result: &answer, Data: answered, End: end, Send: func(send func([]byte) error) error {
		open := blocks.NewSender
		if r.sender.Block {
			open = blocks.NewDeviceSender
		}
		sender, err := open(r.sender.Volume, func(message []byte) error {
			r.meter.sent.Add(int64(len(message)))
			return send(message)
		}, func(n int64) { r.meter.bytes.Add(n) })
		if err != nil {
			return err
		}
		defer sender.Close()
		sender.Ask = func(message []byte) ([]byte, error) {
			r.meter.sent.Add(int64(len(message)))
			if err := send(message); err != nil {
				return nil, err
			}
			select {
			case hashes := <-answers:
				return hashes, nil
			case <-ended:
				return nil, wire.ErrAnswered
			}
		}
		for c, err := range tree.Changes(target, source) {
			if err != nil {
				return err
			}
			if !blocks.Carries(c) {
				continue
			}
			if err := sender.Send(c); err != nil {
				return err
			}
			r.meter.files.Add(1)
		}
		return nil
	}})
	switch {
	case err != nil:
		return err
	case answer.Full:
		return fmt.Errorf("%w: %s", rsync.ErrNoSpace, answer.Error)
	case answer.Error != "":
		return errors.New(answer.Error)
	}
	return nil
}
