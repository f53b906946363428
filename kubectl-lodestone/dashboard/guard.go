package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// guard says which requests are served: those of a page that was opened at the address which the
// command printed. It is a value without I/O.
type guard struct {
	// token is the first element of every path. Who knows it sees what the user may read.
	token string
	// hosts are what a browser asks for that opened the address. Another name that leads here is that
	// of a site which has made its own name mean this machine (DNS rebinding).
	hosts []string
}

func newToken() string {
	random := make([]byte, 24)
	_, _ = rand.Read(random) // it never fails
	return hex.EncodeToString(random)
}

// newGuard returns the guard of a server that listens at an address.
func newGuard(token, address string) guard {
	_, port, _ := net.SplitHostPort(address)
	return guard{token: token, hosts: []string{address, net.JoinHostPort("localhost", port)}}
}

// admit returns what is asked for below the token; or the sentence and the status code with which the
// request is refused. Nothing is said that would tell a stranger more than that.
func (g guard) admit(method, host, path string, header http.Header) (wanted, refusal string, code int) {
	site, origin := header.Get("Sec-Fetch-Site"), header.Get("Origin")
	switch {
	case method != http.MethodGet:
		return "", "the dashboard changes nothing: only GET is served", http.StatusMethodNotAllowed
	case !slices.Contains(g.hosts, strings.ToLower(host)):
		return "", "the dashboard is not served under this name: open the address that kubectl lodestone dashboard printed",
			http.StatusMisdirectedRequest
	case site != "" && site != "same-origin" && site != "none", origin != "" && origin != "http://"+strings.ToLower(host):
		return "", "the dashboard is not served to other pages: open the address that kubectl lodestone dashboard printed in a new tab",
			http.StatusForbidden
	}
	token, wanted, inside := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) != 1 || !inside {
		return "", "this is not the whole address: open the one that kubectl lodestone dashboard printed", http.StatusForbidden
	}
	return wanted, "", 0
}

// protections are the headers of every answer: the page may load its own files and nothing else, run
// no other script, be in no other page and in no cache, and its address goes nowhere.
var protections = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"Cache-Control":                "no-store",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
}

// loopback returns the address to listen at. Any other than a loopback address is refused.
func loopback(address string, port int) (string, error) {
	if port < 0 || port > 65535 {
		return "", cli.Misuse("--port %d is not a port: give one from 1 to 65535, or 0 for any that is free", port)
	}
	ip := net.ParseIP(address)
	if address == "localhost" {
		ip = net.IPv4(127, 0, 0, 1)
	}
	if ip == nil || !ip.IsLoopback() {
		return "", cli.Misuse("--address %q is not a loopback address, and whoever reached the page would see all that you may read: give "+
			"127.0.0.1 or ::1; to look from another machine, forward the port with ssh -L", address)
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(port)), nil
}
