package retryingwatch

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func TestTransport(t *testing.T) {
	refused := errors.New("connection refused")
	tests := []struct {
		name         string
		method, url  string
		wantAttempts int
		wantErr      error
	}{
		{name: "a watch waits until the server is back", method: http.MethodGet, url: "/api/v1/pods?watch=true", wantAttempts: 3},
		{name: "a list fails at once", method: http.MethodGet, url: "/api/v1/pods?limit=500", wantAttempts: 1, wantErr: refused},
		{name: "a write fails at once", method: http.MethodPost, url: "/api/v1/namespaces/a/pods", wantAttempts: 1, wantErr: refused},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			attempts := 0
			next := roundTripFunc(func(*http.Request) (*http.Response, error) {
				if attempts++; attempts < 3 {
					return nil, refused
				}
				return &http.Response{StatusCode: http.StatusOK}, nil
			})
			_, err := transport{next: next}.RoundTrip(httptest.NewRequest(test.method, test.url, nil)) //nolint:bodyclose // it has none
			require.ErrorIs(t, err, test.wantErr)
			require.Equal(t, test.wantAttempts, attempts)
		})
	}
}
