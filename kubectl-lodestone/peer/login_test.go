package peer

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
)

func TestOnlyARequestOfPeerIsApproved(t *testing.T) {
	key, err := credentials.NewKey()
	require.NoError(t, err)
	plan := Plan{HomeID: "11111111", Auth: Certificate}
	want, err := signingRequest(plan, key, *NewOptions())
	require.NoError(t, err)
	for name, test := range map[string]struct {
		change func(*testing.T, *certificatesv1.CertificateSigningRequestSpec)
		says   string
	}{
		"the one of a run before": {change: func(t *testing.T, spec *certificatesv1.CertificateSigningRequestSpec) {
			again, err := signingRequest(plan, key, *NewOptions())
			require.NoError(t, err)
			assert.NotEqual(t, want.Spec.Request, again.Spec.Request, "signatures differ each time")
			spec.Request, spec.ExpirationSeconds, spec.Username = again.Spec.Request, ptr.To[int32](600), "admin"
		}},
		"another signer": {says: "another signer", change: func(_ *testing.T, spec *certificatesv1.CertificateSigningRequestSpec) {
			spec.SignerName = certificatesv1.KubeletServingSignerName
		}},
		"more usages": {says: "other usages", change: func(_ *testing.T, spec *certificatesv1.CertificateSigningRequestSpec) {
			spec.Usages = append(spec.Usages, certificatesv1.UsageServerAuth)
		}},
		"another subject": {says: "another subject", change: func(t *testing.T, spec *certificatesv1.CertificateSigningRequestSpec) {
			spec.Request = request(t, key, "admin", "system:masters")
		}},
		"another group": {says: "another subject", change: func(t *testing.T, spec *certificatesv1.CertificateSigningRequestSpec) {
			spec.Request = request(t, key, plan.User(), "system:masters")
		}},
		"another key": {says: "another key", change: func(t *testing.T, spec *certificatesv1.CertificateSigningRequestSpec) {
			other, err := credentials.NewKey()
			require.NoError(t, err)
			spec.Request = request(t, other, plan.User(), "lodestone:homes")
		}},
		"no request": {says: "cannot be read", change: func(_ *testing.T, spec *certificatesv1.CertificateSigningRequestSpec) {
			spec.Request = []byte("nothing")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			have := want.DeepCopy()
			test.change(t, &have.Spec)
			if test.says == "" {
				assert.Empty(t, difference(have.Spec, want.Spec))
				return
			}
			client := fake.NewClientset(have)
			p := &peering{remote: &cli.Cluster{Context: "west", Client: client}}
			err := p.approve(t.Context(), want)
			require.ErrorContains(t, err, test.says)
			assert.Equal(t, cli.Refused, cli.ExitCodeOf(err))
			for _, action := range client.Actions() {
				assert.Equal(t, "get", action.GetVerb())
			}
		})
	}
}

func request(t *testing.T, key []byte, user, group string) []byte {
	t.Helper()
	content, _, err := credentials.Request(key, user, group)
	require.NoError(t, err)
	return content
}
