package netlab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Port is where pods answer, by TCP and UDP.
const Port = 9000

// Serve has a pod answer until ctx ends: by TCP it says from which address it was called, in a line, and then sends back what it gets;
// by UDP it sends back the address, a line's end and what it got.
func (p *Pod) Serve(ctx context.Context) error {
	at := netip.AddrPortFrom(p.Address, Port).String()
	listener, err := p.Listen(at)
	if err != nil {
		return err
	}
	packets, err := p.ListenPacket(at)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	context.AfterFunc(ctx, func() {
		_ = listener.Close()
		_ = packets.Close()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				fmt.Fprintln(conn, conn.RemoteAddr().(*net.TCPAddr).IP)
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := packets.ReadFromUDPAddrPort(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = packets.WriteToUDPAddrPort(append([]byte(from.Addr().Unmap().String()+"\n"), buffer[:n]...), from)
			}
		}
	}()
	return nil
}

// connect connects to a pod by TCP. On a busy machine a lane may be silent for so long that it does not count for a moment: what is lost
// meanwhile is sent again.
func connect(from *Namespace, to *Pod) (conn net.Conn, err error) {
	for range 10 {
		conn, err = from.Dial("tcp", "", netip.AddrPortFrom(to.Reached, Port).String())
		var late net.Error
		if !errors.As(err, &late) || !late.Timeout() {
			break
		}
	}
	return conn, err
}

// Call calls a pod by TCP, has it send back what is given, and returns the address that it was called from.
func Call(from *Namespace, to *Pod, content []byte) (seen string, err error) {
	conn, err := connect(from, to)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	reader := bufio.NewReader(conn)
	if seen, err = reader.ReadString('\n'); err != nil {
		return "", err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(content)
		sent <- err
	}()
	back := make([]byte, len(content))
	if _, err := io.ReadFull(reader, back); err != nil {
		return "", err
	}
	if string(back) != string(content) {
		return "", errors.New("what came back is not what was sent")
	}
	return strings.TrimSpace(seen), <-sent
}

// Inject sends a packet by a link that has no Ethernet, as it is: nothing of the system has a say in what it is.
func (n *Namespace) Inject(link string, packet []byte) error {
	found, err := n.links.LinkByName(link)
	if err != nil {
		return err
	}
	protocol := []byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff}
	if packet[0]>>4 == 6 {
		protocol = []byte{unix.ETH_P_IPV6 >> 8, unix.ETH_P_IPV6 & 0xff}
	}
	return n.In(func() error {
		socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		return unix.Sendto(socket, packet, 0, &unix.SockaddrLinklayer{Ifindex: found.Attrs().Index,
			Protocol: binary.NativeEndian.Uint16(protocol)})
	})
}

// Ask asks a pod by UDP, once, from an address of the namespace if one is given, and returns the address that it was asked from. Who
// is told that a packet was too large for the way sends it again, which the system cuts to size.
func Ask(from *Namespace, source string, to *Pod, content []byte) (seen string, err error) {
	conn, err := from.Dial("udp", source, netip.AddrPortFrom(to.Reached, Port).String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if seen, err = ask(conn, content); errors.Is(err, syscall.EMSGSIZE) {
		seen, err = ask(conn, content)
	}
	return seen, err
}

// Hear asks a pod by UDP again and again until it answers, and returns an error if it does not within that time. Unlike Ask it is for ways
// that are not there yet: it does not wait for what was lost.
func Hear(from *Namespace, to *Pod, within time.Duration) error {
	conn, err := from.Dial("udp", "", netip.AddrPortFrom(to.Reached, Port).String())
	if err != nil {
		return err
	}
	defer conn.Close()
	const often = 50 * time.Millisecond
	for began := time.Now(); ; {
		sent := time.Now()
		if _, err = conn.Write([]byte("there?")); err == nil {
			if err = conn.SetReadDeadline(sent.Add(often)); err == nil {
				_, err = conn.Read(make([]byte, 100))
			}
		}
		if err == nil || time.Since(began) > within {
			return err
		}
		time.Sleep(time.Until(sent.Add(often)))
	}
}

func ask(conn net.Conn, content []byte) (seen string, err error) {
	if _, err := conn.Write(content); err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	buffer := make([]byte, 1<<16)
	n, err := conn.Read(buffer)
	if err != nil {
		return "", err
	}
	seen, back, _ := strings.Cut(string(buffer[:n]), "\n")
	if back != string(content) {
		return "", errors.New("what came back is not what was sent")
	}
	return seen, nil
}

// Ping sends an echo request of some size by ICMP, and waits for the answer.
func Ping(from *Namespace, to netip.Addr, size int) error {
	network, anywhere, request, answer := "ip4:icmp", "0.0.0.0", byte(8), byte(0)
	if to.Is6() {
		network, anywhere, request, answer = "ip6:ipv6-icmp", "::", 128, 129
	}
	var conn net.PacketConn
	err := from.In(func() (err error) {
		conn, err = (&net.ListenConfig{}).ListenPacket(context.Background(), network, anywhere)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	message := make([]byte, 8+size)
	for i := range message {
		message[i] = byte(rand.Uint())
	}
	message[0], message[1], message[2], message[3] = request, 0, 0, 0
	if to.Is4() { // the kernel does it for IPv6
		binary.BigEndian.PutUint16(message[2:], ^sum(message))
	}
	if _, err := conn.WriteTo(message, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	buffer := make([]byte, 1<<16)
	for {
		n, by, err := conn.ReadFrom(buffer)
		switch {
		case err != nil:
			return err
		case n == len(message) && buffer[0] == answer && bytes.Equal(buffer[4:n], message[4:]):
			if by.String() != to.String() {
				return fmt.Errorf("%s answered, and not %s", by, to)
			}
			return nil
		}
	}
}

// sum is that of ones' complement, of an even number of bytes.
func sum(words []byte) uint16 {
	total := uint32(0)
	for ; len(words) > 1; words = words[2:] {
		total += uint32(binary.BigEndian.Uint16(words))
		total = total&0xffff + total>>16
	}
	return uint16(total)
}

// Talk is a TCP connection over which something is sent and comes back all the time.
type Talk struct {
	conn net.Conn
	mu   sync.Mutex
	// sent and back are how many bytes were, back of those that came back.
	sent, back int
	// gap is the longest time in which nothing came back; last is when something did.
	gap  time.Duration
	last time.Time
	err  error
}

// NewTalk begins to talk with a pod.
func NewTalk(from *Namespace, to *Pod) (*Talk, error) {
	conn, err := connect(from, to)
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	if _, err := reader.ReadString('\n'); err != nil {
		return nil, err
	}
	t := &Talk{conn: conn, last: time.Now()}
	go func() {
		for {
			t.mu.Lock()
			t.sent++
			t.mu.Unlock()
			if _, err := conn.Write([]byte{1}); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	go func() {
		for {
			_, err := reader.ReadByte()
			t.mu.Lock()
			t.gap, t.last = max(t.gap, time.Since(t.last)), time.Now()
			t.back++
			t.err = err
			t.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return t, nil
}

// Gap returns the longest time in which nothing came back since the last call, or why the connection has ended.
func (t *Talk) Gap() (gap time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gap, t.gap = max(t.gap, time.Since(t.last)), 0
	return gap, t.err
}

// GoesOn waits until something comes back that was sent after the call, and returns an error if nothing does within that time.
func (t *Talk) GoesOn(within time.Duration) error {
	began, next := time.Now(), 0
	for {
		t.mu.Lock()
		if next == 0 {
			next = t.sent + 1
		}
		back, err := t.back, t.err
		t.mu.Unlock()
		switch {
		case err != nil:
			return err
		case back >= next:
			return nil
		case time.Since(began) > within:
			return fmt.Errorf("nothing came back for %v", within)
		}
		time.Sleep(time.Millisecond)
	}
}

// Close ends the connection.
func (t *Talk) Close() { _ = t.conn.Close() }

// sinkPort is where pods take all that is sent.
const sinkPort = 9003

// Bulk sends from one pod to another over some connections for a while, after a time in which they find their speed, and returns how
// many bytes arrived in it, and how long it was. Begin is called when it begins.
func Bulk(from, to *Pod, streams int, warm, while time.Duration, begin func()) (received int64, took time.Duration, err error) {
	listener, err := to.Listen(netip.AddrPortFrom(to.Address, sinkPort).String())
	if err != nil {
		return 0, 0, err
	}
	defer listener.Close()
	var arrived atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				buffer := make([]byte, 1<<18)
				for {
					n, err := conn.Read(buffer)
					arrived.Add(int64(n))
					if err != nil {
						_ = conn.Close()
						return
					}
				}
			}()
		}
	}()
	content := make([]byte, 1<<18)
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for range streams {
		conn, err := from.Dial("tcp", "", netip.AddrPortFrom(to.Reached, sinkPort).String())
		if err != nil {
			return 0, 0, err
		}
		conns = append(conns, conn)
		go func() {
			for {
				if _, err := conn.Write(content); err != nil {
					return
				}
			}
		}()
	}
	time.Sleep(warm)
	begin()
	before, began := arrived.Load(), time.Now()
	time.Sleep(while)
	return arrived.Load() - before, time.Since(began), nil
}

// Echoes sends small messages to a pod and back, one after the other, and returns how long each took.
func Echoes(from *Namespace, to *Pod, count int) (took []time.Duration, err error) {
	conn, err := from.Dial("tcp", "", netip.AddrPortFrom(to.Reached, Port).String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	if _, err := reader.ReadString('\n'); err != nil {
		return nil, err
	}
	message := make([]byte, 64)
	for range count {
		began := time.Now()
		if _, err := conn.Write(message); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(reader, message); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// Watch asks a pod by UDP every few milliseconds until ctx ends, and returns the longest time without an answer.
func Watch(ctx context.Context, from *Namespace, to *Pod) (gap time.Duration, err error) {
	conn, err := from.Dial("udp", "", netip.AddrPortFrom(to.Reached, Port).String())
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		for ctx.Err() == nil {
			_, _ = conn.Write([]byte{1})
			time.Sleep(5 * time.Millisecond)
		}
	}()
	last := time.Now()
	buffer := make([]byte, 100)
	for {
		_, err := conn.Read(buffer)
		gap = max(gap, time.Since(last))
		if errors.Is(err, net.ErrClosed) {
			return gap, nil
		}
		if err == nil {
			last = time.Now()
		}
	}
}
