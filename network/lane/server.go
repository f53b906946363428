package lane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/network/places"
)

// Server makes Trunks for one gateway: it has the gateway's keys, and the one port at which others dial.
type Server struct {
	// Dial opens a TCP connection. Tests put a way into a namespace here, before there are Trunks.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	keys     *Keys
	listener net.Listener
	logger   klog.Logger

	mu     sync.Mutex
	trunks []*Trunk
}

// unknownLimit is how many connections may be open whose key is not yet known, unknownEach how many of one source.
const unknownLimit, unknownEach = 32, 8

// NewServer listens at an address until Close is called; at none if it is empty, where this side only dials.
func NewServer(ctx context.Context, keys *Keys, address string) (*Server, error) {
	s := &Server{Dial: (&net.Dialer{Timeout: 2 * time.Second}).DialContext, keys: keys, logger: klog.FromContext(ctx)}
	_, err := keys.Published()
	if err != nil || address == "" {
		return s, err
	}
	if s.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err != nil {
		return nil, fmt.Errorf("listen for gateways of other clusters: %w", err)
	}
	go s.serve()
	return s, nil
}

// Close stops to listen. Trunks are closed by themselves.
func (s *Server) Close() error {
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

func (s *Server) serve() {
	unknown := places.New(unknownLimit, unknownEach)
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.logger.Error(err, "A connection could not be taken: are there too many?")
			time.Sleep(every)
			continue
		}
		go s.take(conn.(*net.TCPConn), unknown.Take(conn))
	}
}

// take finds out to which Trunk a connection belongs; known is called when it is known to whom it belongs.
func (s *Server) take(tcp *net.TCPConn, known func()) {
	var trunk *Trunk
	var from *gateway
	identity := s.keys.shown()
	config := identity.tlsConfig(func(key Key) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, t := range s.trunks {
			if g := t.owner(key); g != nil {
				trunk, from = t, g
				return nil
			}
		}
		return errUnknown
	})
	c, err := secure(context.Background(), tcp, identity.Key, func(conn net.Conn) *tls.Conn { return tls.Server(conn, config) })
	known()
	if err != nil {
		s.logger.V(2).Info("A connection was refused", "from", tcp.RemoteAddr(), "reason", err.Error())
		return
	}
	trunk.failed(from, trunk.use(from, c))
}

// dial makes one connection to an address whose key must be the expected one.
func (s *Server) dial(ctx context.Context, address string, expect func(Key) error) (*connection, error) {
	conn, err := s.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	identity := s.keys.shown()
	config := identity.tlsConfig(expect)
	return secure(ctx, conn.(*net.TCPConn), identity.Key, func(conn net.Conn) *tls.Conn { return tls.Client(conn, config) })
}

// NewTrunk makes a device, of so many queues, and a connection to each gateway for each of them.
func (s *Server) NewTrunk(device string, connections int) (*Trunk, error) {
	queues, err := openTUN(device, connections)
	if err != nil {
		return nil, err
	}
	t := &Trunk{device: device, server: s, queues: queues, changed: make(chan struct{}, 1), peers: map[string]*gateway{},
		out: newLimit(outBurst), in: newLimit(inBurst)}
	t.usable.Store(&[]*connection{})
	for i := range queues {
		t.running.Go(func() { t.carry(i) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trunks = append(s.trunks, t)
	return t, nil
}

// Rotate takes the next step of a change of the gateway's key (keys.go), and changes that for WireGuard. It is to be called every second
// or so. Age is how old keys get; 0: as old as they like.
func (s *Server) Rotate(age time.Duration) error {
	s.mu.Lock()
	trunks := slices.Clone(s.trunks)
	s.mu.Unlock()
	var gateways []Status
	for _, t := range trunks {
		gateways = append(gateways, t.Status()...)
	}
	err := s.keys.rotate(s.logger, age, gateways, func(own Key) {
		for _, t := range trunks {
			t.renew(own)
		}
	})
	if age > 0 {
		err = errors.Join(err, ChangeWireGuardKey(s.keys.dir, age))
	}
	return err
}

func (s *Server) remove(t *Trunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trunks = slices.DeleteFunc(s.trunks, func(other *Trunk) bool { return other == t })
}
