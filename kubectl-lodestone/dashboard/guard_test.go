package dashboard

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

func TestOnlyThePageThatWasOpenedAtTheAddressIsServed(t *testing.T) {
	g := newGuard("secret", "127.0.0.1:8400")
	for name, test := range map[string]struct {
		method, host, path string
		site, origin       string
		wanted             string
		code               int
	}{
		"the page":                               {path: "/secret/"},
		"a file of it":                           {path: "/secret/app.js", wanted: "app.js"},
		"the page by the name of this machine":   {host: "LocalHost:8400", path: "/secret/"},
		"typed into the address bar":             {path: "/secret/", site: "none"},
		"what the page itself asks for":          {path: "/secret/events", site: "same-origin", wanted: "events"},
		"the page with its own origin":           {path: "/secret/", origin: "http://127.0.0.1:8400"},
		"no token":                               {path: "/", code: http.StatusForbidden},
		"a wrong token":                          {path: "/Secret/", code: http.StatusForbidden},
		"a part of the token":                    {path: "/secre/", code: http.StatusForbidden},
		"the token without a slash":              {path: "/secret", code: http.StatusForbidden},
		"the token further down":                 {path: "/x/secret/", code: http.StatusForbidden},
		"a name that was made to lead here":      {host: "evil.example:8400", path: "/secret/", code: http.StatusMisdirectedRequest},
		"another port":                           {host: "127.0.0.1:80", path: "/secret/", code: http.StatusMisdirectedRequest},
		"no port":                                {host: "127.0.0.1", path: "/secret/", code: http.StatusMisdirectedRequest},
		"another site":                           {path: "/secret/", site: "cross-site", code: http.StatusForbidden},
		"another port of this machine as a site": {path: "/secret/", site: "same-site", code: http.StatusForbidden},
		"another origin":                         {path: "/secret/", origin: "http://127.0.0.1:80", code: http.StatusForbidden},
		"an origin that hides its name":          {path: "/secret/", origin: "null", code: http.StatusForbidden},
		"something that would change":            {method: http.MethodPost, path: "/secret/", code: http.StatusMethodNotAllowed},
		"a question what is allowed":             {method: http.MethodOptions, path: "/secret/", code: http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{}
			if test.site != "" {
				header.Set("Sec-Fetch-Site", test.site)
			}
			if test.origin != "" {
				header.Set("Origin", test.origin)
			}
			if test.method == "" {
				test.method = http.MethodGet
			}
			if test.host == "" {
				test.host = "127.0.0.1:8400"
			}
			wanted, refusal, code := g.admit(test.method, test.host, test.path, header)
			assert.Equal(t, test.code, code)
			assert.Equal(t, test.wanted, wanted)
			assert.Equal(t, code != 0, refusal != "", refusal)
			assert.NotContains(t, refusal, "secret")
		})
	}
}

func TestTokensCannotBeGuessed(t *testing.T) {
	one := newToken()
	assert.Len(t, one, 48)
	assert.NotEqual(t, one, newToken())
}

func TestThePageIsServedOnLoopbackAlone(t *testing.T) {
	for name, test := range map[string]struct {
		address string
		port    int
		want    string
		problem string
	}{
		"loopback":                  {address: "127.0.0.1", want: "127.0.0.1:0"},
		"another loopback address":  {address: "127.0.0.2", port: 80, want: "127.0.0.2:80"},
		"loopback of IPv6":          {address: "::1", port: 8400, want: "[::1]:8400"},
		"its name":                  {address: "localhost", port: 8400, want: "127.0.0.1:8400"},
		"all addresses":             {address: "0.0.0.0", problem: "is not a loopback address"},
		"all addresses of IPv6":     {address: "::", problem: "is not a loopback address"},
		"an address of the network": {address: "192.0.2.7", problem: "ssh -L"},
		"a name":                    {address: "example.com", problem: "is not a loopback address"},
		"nothing":                   {problem: "is not a loopback address"},
		"a negative port":           {address: "127.0.0.1", port: -1, problem: "--port -1 is not a port"},
		"a port too far":            {address: "127.0.0.1", port: 65536, problem: "give one from 1 to 65535"},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := loopback(test.address, test.port)
			if test.problem != "" {
				require.ErrorContains(t, err, test.problem)
				assert.Equal(t, cli.Usage, cli.ExitCodeOf(err))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, at)
		})
	}
}
