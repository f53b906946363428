package kubelet

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

// signer answers every request for a certificate as decide does.
func signer(t *testing.T, decide func(*certificatesv1.CertificateSigningRequest)) *fake.Clientset {
	t.Helper()
	home := fake.NewClientset()
	home.PrependReactor("create", "certificatesigningrequests", func(action kubetesting.Action) (bool, runtime.Object, error) {
		request := action.(kubetesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest).DeepCopy()
		request.Name, request.UID = "csr-1", "csr-uid"
		decide(request)
		return true, request, home.Tracker().Add(request)
	})
	return home
}

func TestTheCertificateOfTheClusterServesOnceItIsGiven(t *testing.T) {
	authority := newAuthority(t)
	var asked *x509.CertificateRequest
	home := signer(t, func(request *certificatesv1.CertificateSigningRequest) {
		block, _ := pem.Decode(request.Spec.Request)
		var err error
		asked, err = x509.ParseCertificateRequest(block.Bytes)
		require.NoError(t, err)
		assert.Equal(t, certificatesv1.KubeletServingSignerName, request.Spec.SignerName)
		template := &x509.Certificate{Subject: asked.Subject, DNSNames: asked.DNSNames, IPAddresses: asked.IPAddresses,
			SerialNumber: authority.certificate.SerialNumber,
			NotBefore:    authority.certificate.NotBefore, NotAfter: authority.certificate.NotAfter,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		der, err := x509.CreateCertificate(rand.Reader, template, authority.certificate, asked.PublicKey, authority.key)
		require.NoError(t, err)
		request.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
			Status: corev1.ConditionTrue}}
	})
	c, err := newCertificate(home, "west", "10.0.0.7")
	require.NoError(t, err)
	self := c.current.Load().Leaf
	assert.Equal(t, self.Subject.String(), self.Issuer.String())
	require.NoError(t, self.VerifyHostname("10.0.0.7"))

	require.NoError(t, c.request(t.Context()))
	given := c.current.Load().Leaf
	assert.Equal(t, "authority", given.Issuer.CommonName)
	require.NoError(t, given.VerifyHostname("10.0.0.7"))
	assert.Equal(t, "system:node:west", asked.Subject.CommonName)
	assert.Equal(t, []string{"system:nodes"}, asked.Subject.Organization)
}

func TestWhereACertificateIsRefusedOurOwnServes(t *testing.T) {
	home := signer(t, func(request *certificatesv1.CertificateSigningRequest) {
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
			Status: corev1.ConditionTrue, Message: "no"}}
	})
	c, err := newCertificate(home, "west", "10.0.0.7")
	require.NoError(t, err)
	before := c.current.Load()
	require.Error(t, c.request(t.Context()))
	assert.Same(t, before, c.current.Load())
}

func TestANodeKeepsItsPortIfNobodyElseHasIt(t *testing.T) {
	free := func() int {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		return listener.Addr().(*net.TCPAddr).Port
	}
	first := free()
	nodeAt := func(name, address string, port int) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}}}}
	}
	for name, test := range map[string]struct {
		nodes []*corev1.Node
		want  func(port int) bool
	}{
		"a new node takes the first": {want: func(port int) bool { return port == first }},
		"one that had another keeps it": {nodes: []*corev1.Node{nodeAt("west", "10.0.0.9", first+1)}, want: func(port int) bool {
			return port == first+1
		}},
		"not that of another here": {nodes: []*corev1.Node{nodeAt("east", "127.0.0.1", first)}, want: func(port int) bool {
			return port > first
		}},
		"that of another elsewhere": {nodes: []*corev1.Node{nodeAt("east", "10.0.0.9", first)}, want: func(port int) bool {
			return port == first
		}},
		"not its own if another has it": {nodes: []*corev1.Node{nodeAt("west", "127.0.0.1", first), nodeAt("east", "127.0.0.1", first)},
			want: func(port int) bool { return port > first }},
		"not one from before the range": {nodes: []*corev1.Node{nodeAt("west", "127.0.0.1", 1)}, want: func(port int) bool {
			return port == first
		}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Nodes().Informer()
			for _, node := range test.nodes {
				require.NoError(t, nodes.GetStore().Add(node))
			}
			server := New(Config{Nodes: nodes, NodeIP: "127.0.0.1", Listen: "127.0.0.1", PortsFrom: first})
			listener, err := server.listen(t.Context(), "west")
			require.NoError(t, err)
			port := listener.Addr().(*net.TCPAddr).Port
			require.NoError(t, listener.Close())
			assert.True(t, test.want(port), "got %d, the first is %d", port, first)
		})
	}
}
