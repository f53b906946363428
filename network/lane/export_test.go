package lane

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
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

// HearsBeside has a trunk take it that something comes by WireGuard from a gateway.
func (t *Trunk) HearsBeside(peer string) { t.besideOf(peer).hears.Store(true) }

// Ticks dials a Server with the key of another one, by the newest version of what gateways say or by an older one, and returns the first
// ticks that come.
func Ticks(ctx context.Context, from *Server, address string, expected Key, older, count int) (ticks []byte, err error) {
	conn, err := from.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	identity := from.keys.shown()
	config := identity.tlsConfig(func(key Key) error {
		if key != expected {
			return errUnknown
		}
		return nil
	})
	config.NextProtos = protocols[older:]
	c, err := secure(ctx, conn.(*net.TCPConn), identity.Key, func(conn net.Conn) *tls.Conn { return tls.Client(conn, config) })
	if err != nil {
		return nil, err
	}
	defer c.close(nil)
	for len(ticks) < count {
		kind, content, err := readFrame(c.tls, make([]byte, packetLimit))
		if err != nil {
			return nil, err
		}
		if older > 0 && len(content) != 1 {
			return nil, fmt.Errorf("a frame of %d bytes, which older gateways do not know", len(content))
		}
		if kind == kindTick {
			ticks = append(ticks, content[0])
		}
		c.beside = &beside{}
		c.tick(true, nil)
	}
	return ticks, nil
}
