package path

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/lodestone-storage/lodestone/network/places"
)

// Port is where pods answer, by TCP and UDP.
const Port = 7476

// patience is how long an answer may take.
const patience = 2 * time.Second

// Serve answers until ctx ends: by UDP with the address that a packet came from, the end of a line, and what was in it; by TCP with that
// address, in a line, and then with what comes.
func Serve(ctx context.Context, at netip.AddrPort) error {
	family := "4"
	if at.Addr().Is6() {
		family = "6"
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp"+family, at.String())
	if err != nil {
		return fmt.Errorf("answer probes by TCP: %w", err)
	}
	packets, err := net.ListenUDP("udp"+family, net.UDPAddrFromAddrPort(at))
	if err != nil {
		return errors.Join(fmt.Errorf("answer probes by UDP: %w", err), listener.Close())
	}
	context.AfterFunc(ctx, func() {
		_ = listener.Close()
		_ = packets.Close()
	})
	go serveTCP(listener)
	go serveUDP(packets)
	return nil
}

// served bounds how many connections are served at once, servedEach those of one source: anybody in the cluster may connect.
const served, servedEach = 64, 8

func serveTCP(listener net.Listener) {
	taken := places.New(served, servedEach)
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(patience / 10)
			continue
		}
		leave := taken.Take(conn)
		go func() {
			defer leave()
			defer conn.Close()
			if conn.SetDeadline(time.Now().Add(2*patience)) != nil {
				return
			}
			from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
			if err != nil {
				return
			}
			if _, err := fmt.Fprintln(conn, from.Addr()); err == nil {
				_, _ = io.Copy(conn, conn)
			}
		}()
	}
}

func serveUDP(packets *net.UDPConn) {
	own := packets.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := packets.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && from.Port() != own { // who answers would get the answer, and answer for ever
			_, _ = packets.WriteToUDPAddrPort(append([]byte(from.Addr().Unmap().String()+"\n"), buffer[:n]...), from)
		}
	}
}

var (
	errOther     = errors.New("what came back is not what was sent")
	errNoAddress = errors.New("what came back does not begin with the address of who sent it")
)

// lineLimit bounds what is read of an answer for an address and the end of its line. The other side is in the hands of somebody else, and
// what it says in place of an address is not repeated.
const lineLimit = 64

// seenIn is the address that an answer begins with.
func seenIn(line string) (netip.Addr, error) {
	address, err := netip.ParseAddr(strings.TrimSpace(line))
	if err != nil || len(line) > lineLimit || address.Is4In6() || address.Zone() != "" {
		return netip.Addr{}, errNoAddress
	}
	return address, nil
}

// AskUDP sends one packet and returns the address that it was seen to come from.
func AskUDP(to netip.AddrPort, content []byte) (seen netip.Addr, err error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return seen, err
	}
	defer conn.Close()
	// Who is told that a packet was too large for the way sends it again, which the system then cuts to size.
	if seen, err = ask(conn, content); errors.Is(err, syscall.EMSGSIZE) {
		seen, err = ask(conn, content)
	}
	return seen, err
}

func ask(conn *net.UDPConn, content []byte) (seen netip.Addr, err error) {
	if _, err := conn.Write(content); err != nil {
		return seen, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return seen, err
	}
	buffer := make([]byte, 1<<16)
	n, err := conn.Read(buffer)
	if err != nil {
		return seen, err
	}
	address, back, _ := strings.Cut(string(buffer[:n]), "\n")
	if back != string(content) {
		return seen, errOther
	}
	return seenIn(address)
}

// AskTCP has a connection's content come back and returns the address that it was seen to come from.
func AskTCP(ctx context.Context, to netip.AddrPort, content []byte) (seen netip.Addr, err error) {
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return seen, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		return seen, err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(content)
		sent <- err
	}()
	reader := bufio.NewReaderSize(conn, lineLimit)
	line, err := reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return seen, errNoAddress
	}
	if err != nil {
		return seen, err
	}
	address := string(line)
	back := make([]byte, len(content))
	if _, err := io.ReadFull(reader, back); err != nil {
		return seen, err
	}
	if string(back) != string(content) {
		return seen, errOther
	}
	if err := <-sent; err != nil {
		return seen, err
	}
	return seenIn(address)
}
