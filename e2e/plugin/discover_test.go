package plugin

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// fabricDomain is the domain of the test's zone.
const fabricDomain = "fabric.example.com"

// serveZone serves the lines of a zone file on loopback, and returns the address.
func serveZone(t *testing.T, file string) string {
	t.Helper()
	var records []dns.RR
	parser := dns.NewZoneParser(strings.NewReader(file), "", "")
	for record, more := parser.Next(); more; record, more = parser.Next() {
		records = append(records, record)
	}
	require.NoError(t, parser.Err())
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
		answer := new(dns.Msg).SetReply(question)
		for _, record := range records {
			if header := record.Header(); header.Rrtype == question.Question[0].Qtype && header.Name == question.Question[0].Name {
				answer.Answer = append(answer.Answer, record)
			}
		}
		_ = w.WriteMsg(answer)
	})}
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	go func() { _ = server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = server.Shutdown() })
	return packets.LocalAddr().String()
}

// showAuthority has west show its certificate authority to everybody, as kubeadm does.
func showAuthority(t *testing.T) {
	t.Helper()
	info, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{
		"": {Server: bed.West.AdminConfig().Host, CertificateAuthorityData: bed.West.AdminConfig().CAData}}})
	require.NoError(t, err)
	named := metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"}
	client := bed.West.Client()
	must.Create(t, client.CoreV1().ConfigMaps(named.Namespace), &corev1.ConfigMap{ObjectMeta: named,
		Data: map[string]string{"kubeconfig": string(info)}})
	must.Create(t, client.RbacV1().Roles(named.Namespace), &rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{named.Name}}}})
	must.Create(t, client.RbacV1().RoleBindings(named.Namespace), &rbacv1.RoleBinding{ObjectMeta: named,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:anonymous"}}})
}

// TestAClusterThatAnnouncesItselfIsFoundAndPeered: west's owner announces it in a zone, home finds it there and peers with the token and
// the hash that the owner handed out.
func TestAClusterThatAnnouncesItselfIsFoundAndPeered(t *testing.T) {
	testbed.Require(t)
	showAuthority(t)
	announced := lodestone(t, "announce", "--context", "west", "--domain", fabricDomain).ends(t, done)
	t.Logf("announce:\n%s%s", announced.out, announced.stderr)
	assert.NotContains(t, announced.stderr, "does not show")
	_, hash, found := strings.Cut(announced.stderr, "--remote-ca-hash ")
	require.True(t, found, announced.stderr)
	hash, _, _ = strings.Cut(hash, "\n")

	in := []string{"--domain", fabricDomain, "--dns-server", serveZone(t, announced.out)}
	discovered := lodestone(t, append([]string{"discover"}, in...)...).ends(t, done)
	t.Logf("discover:\n%s%s", discovered.out, discovered.stderr)
	assert.Regexp(t, `^NAME +SERVER +VERSION +PEERED AS +CA HASH\nwest +https://\S+ +v1\.\S+ +<none> +`+hash+`\n$`, discovered.out)

	// The owner hands out a token of an account that may do no more than that takes.
	must.Kubectl(t, bed.West, "", "apply", "-f", filepath.Join(fabric.Root(), "deploy", "examples", "remote-peering.yaml"))
	token := must.Kubectl(t, bed.West, "", "create", "token", "lodestone-peering", "-n", "lodestone-remote")
	file := filepath.Join(t.TempDir(), "west.token")
	require.NoError(t, os.WriteFile(file, []byte(token), 0o600))

	peer := append([]string{"peer", "--discovered", "west", "--remote-token-file", file}, in...)
	wrong := "sha256:" + strings.Repeat("0a", 32)
	r := lodestone(t, append(peer, "--remote-ca-hash", wrong)...).ends(t, refused)
	assert.Contains(t, r.stderr, "so the token was not sent")
	r = lodestone(t, append(peer, "--remote-ca-hash", hash, "--discovered", "mars")...).ends(t, failed)
	assert.Contains(t, r.stderr, `no cluster announces itself as "mars" in domain `+fabricDomain+`; there is: west`)

	t.Cleanup(func() { unpeered(t) })
	r = lodestone(t, append(peer, "--remote-ca-hash", hash, "--namespaces", "*")...).ends(t, done)
	t.Logf("peer:\n%s%s", r.out, r.stderr)
	assert.Equal(t, "remotecluster.lodestone.dev/west peered\n", r.out)
	remote := must.Get(t, bed.Remotes, "west")
	assert.Contains(t, conditionsOf(remote), v1alpha1.Ready)
	assert.NotContains(t, kubeconfigOf(t, "west"), strings.TrimSpace(token), "home has an identity of its own")

	discovered = lodestone(t, append([]string{"discover", "-o", "json"}, in...)...).ends(t, done)
	var all struct {
		Clusters []struct{ Name, PeeredAs, CAHash string }
	}
	require.NoError(t, json.Unmarshal([]byte(discovered.out), &all))
	require.Len(t, all.Clusters, 1)
	assert.Equal(t, "west", all.Clusters[0].PeeredAs)
	assert.Equal(t, hash, all.Clusters[0].CAHash)

	t.Run("nobody has to have a cluster to look", func(t *testing.T) {
		c := command(t.Context(), "", append([]string{"discover", "-o", "name"}, in...)...)
		c.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(t.TempDir(), "none"), "HOME="+t.TempDir())
		r := finish(t, c).ends(t, done)
		assert.Equal(t, "west\n", r.out)
		assert.Empty(t, r.stderr)
	})
}

// conditionsOf returns the types of the conditions that are True.
func conditionsOf(remote *v1alpha1.RemoteCluster) (types []string) {
	for _, condition := range remote.Status.Conditions {
		if condition.Status == metav1.ConditionTrue {
			types = append(types, condition.Type)
		}
	}
	return types
}
