package kubelet

import (
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

func TestAnswersOnTokensAreBelievedForAWhile(t *testing.T) {
	a, now := newAnswers(), time.Unix(1700000000, 0)
	_, ok := a.get("t", now)
	assert.False(t, ok)
	a.set("t", answer{user: &user{name: "scraper"}}, now)
	got, ok := a.get("t", now.Add(answerAge-1))
	require.True(t, ok)
	assert.Equal(t, "scraper", got.user.name)
	_, ok = a.get("t", now.Add(answerAge))
	assert.False(t, ok, "it is asked again")
}

func TestJunkDoesNotDriveOutWhatIsKnown(t *testing.T) {
	a, now := newAnswers(), time.Unix(1700000000, 0)
	a.set("t", answer{user: &user{name: "scraper"}}, now)
	for i := range 2 * maxAnswers {
		a.set("junk"+strconv.Itoa(i), answer{err: errors.New("nobody's")}, now)
	}
	assert.Len(t, a.known, maxAnswers)
	_, ok := a.get("t", now)
	assert.True(t, ok)
	for i := range 2 * maxAnswers {
		a.set("good"+strconv.Itoa(i), answer{user: &user{}}, now)
	}
	assert.Len(t, a.known, maxAnswers)
}

func TestATokenIsAskedForOnce(t *testing.T) {
	f := newFixture(t)
	var asked atomic.Int32
	f.server.config.Judge.(*fake.Clientset).PrependReactor("create", "tokenreviews", func(kubetesting.Action) (bool, runtime.Object, error) {
		asked.Add(1)
		return false, nil, nil
	})
	for range 3 {
		status, _ := f.get(t, "/pods", nil, map[string]string{"Authorization": "Bearer scraper-token"})
		assert.Equal(t, http.StatusForbidden, status)
		status, _ = f.get(t, "/pods", nil, map[string]string{"Authorization": "Bearer junk"})
		assert.Equal(t, http.StatusUnauthorized, status)
	}
	assert.EqualValues(t, 2, asked.Load(), "once for each")
}

func TestAFloodOfTokensDoesNotKeepOutTheAPIServer(t *testing.T) {
	f := newFixture(t)
	for range maxStrangers {
		f.server.strangers <- struct{}{}
	}
	status, body := f.get(t, "/healthz", nil, map[string]string{"Authorization": "Bearer scraper-token"})
	assert.Equal(t, http.StatusServiceUnavailable, status, body)
	status, body = f.get(t, "/healthz", f.authority.client(t, "kube-apiserver-kubelet-client", "operators"), nil)
	assert.Equal(t, http.StatusOK, status, body)
	<-f.server.strangers
	status, _ = f.get(t, "/healthz", nil, map[string]string{"Authorization": "Bearer junk"})
	assert.Equal(t, http.StatusUnauthorized, status)
	assert.Len(t, f.server.strangers, maxStrangers-1, "its place is free again")
}
