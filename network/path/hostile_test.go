package path

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
)

// serving answers at a port of loopback that is free for TCP and UDP.
func serving(t *testing.T) netip.AddrPort {
	t.Helper()
	for port := uint16(21000); ; port++ {
		at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		if Serve(t.Context(), at) == nil {
			return at
		}
	}
}

func TestWhatAnAnswerSaysInPlaceOfAnAddressIsNotRepeated(t *testing.T) {
	for _, line := range []string{strings.Repeat("x", 60000), "fe80::1%" + strings.Repeat("z", 50), "192.0.2.1" + strings.Repeat(" ", 60),
		""} {
		packets, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = packets.Close() })
		go func() {
			buffer := make([]byte, 1<<10)
			if n, from, err := packets.ReadFromUDPAddrPort(buffer); err == nil {
				_, _ = packets.WriteToUDPAddrPort(append([]byte(line+"\n"), buffer[:n]...), from)
			}
		}()
		_, err = AskUDP(packets.LocalAddr().(*net.UDPAddr).AddrPort(), content(8))
		require.ErrorIs(t, err, errNoAddress)
	}
}

func TestAnAnswerWithoutEndIsNotRead(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	wrote := make(chan int, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		total := 0
		for total < 256<<20 {
			n, err := conn.Write(make([]byte, 1<<20))
			if total += n; err != nil {
				break
			}
		}
		wrote <- total
	}()
	_, err = AskTCP(t.Context(), listener.Addr().(*net.TCPAddr).AddrPort(), content(8))
	require.ErrorIs(t, err, errNoAddress)
	assert.Less(t, <-wrote, 64<<20, "it hangs up")
}

func TestMessagesHaveAnEnd(t *testing.T) {
	own, other := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1")
	problem := judge("UDP", own, other, func() (netip.Addr, error) { return own, fmt.Errorf("a\n%s", strings.Repeat("x", 60000)) })
	assert.Len(t, problem, networkv1alpha1.MaxMessage)
	assert.NotContains(t, problem, "\n")
	var present []networkv1alpha1.ProbeStatus
	for i := range 200 {
		present = append(present, networkv1alpha1.ProbeStatus{Name: fmt.Sprint("p", i), RenewTime: metav1.NewTime(time.Unix(int64(1000+i), 0))})
	}
	kept := entries(present, networkv1alpha1.ProbeStatus{Name: "own"}, false, func(string) bool { return false })
	require.Len(t, kept, networkv1alpha1.MaxProbes)
	assert.Contains(t, kept, networkv1alpha1.ProbeStatus{Name: "own"})
	assert.Contains(t, kept, present[199], "the newest are kept")
}

func TestNobodyAnswersAnswersForEver(t *testing.T) {
	at := serving(t)
	// Another one that answers at the same port, of which somebody says that it had asked.
	other, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2), Port: int(at.Port())})
	require.NoError(t, err)
	defer other.Close()
	_, err = other.WriteToUDPAddrPort([]byte("x"), at)
	require.NoError(t, err)
	require.NoError(t, other.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	_, err = other.Read(make([]byte, 10))
	require.Error(t, err)
	_, err = AskUDP(at, content(8))
	assert.NoError(t, err, "others are answered")
}

func TestNobodyKeepsOthersOut(t *testing.T) {
	at := serving(t)
	dial := func(from byte) net.Conn {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}).Dial("tcp4", at.String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
		_, err = bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err, "whoever comes is answered")
		return conn
	}
	gone := func(conn net.Conn) bool {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		_, err := conn.Read(make([]byte, 1))
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
	other, first := dial(4), dial(3)
	for range servedEach {
		dial(3)
	}
	assert.True(t, gone(first), "its source has as many as it may")
	assert.False(t, gone(other))
	for source := range byte(served) {
		dial(10 + source)
	}
	assert.True(t, gone(other), "it waited for the longest time")
}
