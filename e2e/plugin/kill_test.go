package plugin

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

func TestPeerGoesOnAfterAKillAtEachWrite(t *testing.T) {
	testbed.Require(t)
	k := newKiller(t)
	ca := t.TempDir() + "/ca.crt"
	require.NoError(t, os.WriteFile(ca, bed.West.AdminConfig().CAData, 0o600))
	for auth, writes := range map[string]int{"token": 4, "certificate": 6} {
		t.Run(auth, func(t *testing.T) {
			args := []string{"peer", "--remote-context", "west", "--auth", auth, "--remote-server", bed.West.AdminConfig().Host, "--remote-ca-file", ca}
			killed := 0
			for n := 1; ; n++ {
				requests := signingRequests(t)
				r, dead := k.run(t, n, args...)
				if !dead {
					r.ends(t, done)
					unpeered(t)
					break
				}
				killed++
				r, _ = k.run(t, 0, args...)
				r.ends(t, done)
				assert.True(t, accepted(t, kubeconfigOf(t, "west")))
				assert.NotContains(t, secretOf(t, "west").Data, "pending.key")
				if auth == "certificate" {
					assert.Equal(t, requests+1, signingRequests(t), "the second run goes on with the request of the first")
				}
				unpeered(t)
			}
			assert.Equal(t, writes, killed)
		})
	}
}

// Only the last but one write takes the token's rights away; before it there is
// a certificate.
func TestATokenWorksUntilThereIsACertificate(t *testing.T) {
	peered(t)
	k := newKiller(t)
	for n := 1; n <= 3; n++ {
		_, dead := k.run(t, n, "peer", "--remote-context", "west", "--auth", "certificate")
		require.True(t, dead)
		home, err := homeClusterOf(t)
		require.NoError(t, err)
		assert.Empty(t, home.Spec.User)
		assert.True(t, accepted(t, kubeconfigOf(t, "west")))
		lodestone(t, "peer", "--remote-context", "west").ends(t, done)
		assert.NotContains(t, secretOf(t, "west").Data, "pending.key")
	}
	r := lodestone(t, "peer", "--remote-context", "west", "--auth", "certificate").ends(t, done)
	assert.Contains(t, r.stderr, "got a client certificate")
	home, err := homeClusterOf(t)
	require.NoError(t, err)
	assert.NotEmpty(t, home.Spec.User)
	assert.True(t, accepted(t, kubeconfigOf(t, "west")))
	lodestone(t, "peer", "--remote-context", "west", "--auth", "token").ends(t, done)
	assert.True(t, accepted(t, kubeconfigOf(t, "west")))
}

func TestUnpeerGoesOnAfterAKillAtEachWrite(t *testing.T) {
	testbed.Require(t)
	k := newKiller(t)
	killed := 0
	for n := 1; ; n++ {
		peered(t)
		r, dead := k.run(t, n, "unpeer", "west", "--remote-context", "west")
		if dead {
			killed++
			r, _ = k.run(t, 0, "unpeer", "west", "--remote-context", "west")
		}
		r.ends(t, done)
		nothingIsLeft(t)
		_, err := homeClusterOf(t)
		assert.True(t, apierrors.IsNotFound(err))
		if !dead {
			break
		}
	}
	assert.Equal(t, 3, killed)
}

func signingRequests(t *testing.T) int {
	t.Helper()
	list, err := bed.West.Client().CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return len(list.Items)
}
