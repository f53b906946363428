package lane

import (
	"context"
)

// SendPackets dials a Server with the key of another one, as a gateway of another cluster does that is in the hands of somebody, and sends
// packets, each with the kernel's header before it, as they are. It returns what ends the connection.
func SendPackets(ctx context.Context, from *Server, address string, expected Key, packets [][]byte) (end func(), err error) {
	c, err := from.dial(ctx, address, func(key Key) error {
		if key != expected {
			return errUnknown
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = c.send(func() ([]byte, error) {
		if len(packets) == 0 {
			return nil, nil
		}
		frame := append(make([]byte, frameHeader), packets[0]...)
		packets = packets[1:]
		putHeader(frame, kindPacket)
		return frame, nil
	})
	return func() { c.close(nil) }, err
}
