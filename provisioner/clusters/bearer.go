package clusters

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/credentials"
)

// bearer is the token of a connection. It can be replaced, so that a renewed
// token does not cost the connection with all that it watches.
type bearer struct{ token atomic.Pointer[string] }

// newBearer takes the token out of a client configuration and sends it with each
// request instead; nil if there is none.
func newBearer(config *rest.Config) *bearer {
	if config.BearerToken == "" {
		return nil
	}
	b := &bearer{}
	b.set(config.BearerToken)
	config.BearerToken = ""
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bearing{bearer: b, next: next} })
	return b
}

func (b *bearer) set(token string) { b.token.Store(&token) }

type bearing struct {
	bearer *bearer
	next   http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = &bearing{}

// RoundTrip implements http.RoundTripper.
func (b *bearing) RoundTrip(request *http.Request) (*http.Response, error) {
	request = utilnet.CloneRequest(request)
	request.Header.Set("Authorization", "Bearer "+*b.bearer.token.Load())
	return b.next.RoundTrip(request)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (b *bearing) WrappedRoundTripper() http.RoundTripper { return b.next }

// renewed says whether a kubeconfig of this shape differs from the present one
// in the token alone, and the present connection is in order: then its watches
// can stay. The lock is held.
func (c *Cluster) renewed(shape string) bool {
	usable, _, _ := c.verdict.usable()
	return c.connection != nil && usable && c.fingerprint != "" && c.bearer != nil && shape != "" && c.shape == shape
}

func fingerprintOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// shapeOf is the fingerprint of all of a connection but its token; empty if it
// has none.
func shapeOf(data []byte, strategy v1alpha1.NamespaceStrategy) string {
	without, err := credentials.WithToken(data, "")
	if err != nil {
		return ""
	}
	return fingerprintOf(without) + string(strategy)
}
