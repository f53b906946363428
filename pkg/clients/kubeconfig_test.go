package clients

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig returns a usable kubeconfig after the change.
func kubeconfig(t *testing.T, change func(config *clientcmdapi.Config, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	cluster := &clientcmdapi.Cluster{Server: "https://127.0.0.1:6443", CertificateAuthorityData: []byte("ca")}
	user := &clientcmdapi.AuthInfo{Token: "token"}
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"west": cluster}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"home": user},
		Contexts:       map[string]*clientcmdapi.Context{"home@west": {Cluster: "west", AuthInfo: "home"}},
		CurrentContext: "home@west",
	}
	if change != nil {
		change(&config, cluster, user)
	}
	data, err := clientcmd.Write(config)
	require.NoError(t, err)
	return data
}

func TestParseKubeconfigTakesTokensAndCertificates(t *testing.T) {
	config, err := ParseKubeconfig(kubeconfig(t, nil))
	require.NoError(t, err)
	assert.Equal(t, "https://127.0.0.1:6443", config.Host)
	assert.Equal(t, "token", config.BearerToken)
	assert.Equal(t, []byte("ca"), config.CAData)

	config, err = ParseKubeconfig(kubeconfig(t, func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		*user = clientcmdapi.AuthInfo{ClientCertificateData: []byte("certificate"), ClientKeyData: []byte("key")}
	}))
	require.NoError(t, err)
	assert.Equal(t, []byte("certificate"), config.CertData)
	assert.Equal(t, []byte("key"), config.KeyData)
}

func TestParseKubeconfigIgnoresWhatTheCurrentContextDoesNotName(t *testing.T) {
	config, err := ParseKubeconfig(kubeconfig(t, func(config *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		config.AuthInfos["other"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: "/bin/true",
			APIVersion: "client.authentication.k8s.io/v1"}}
	}))
	require.NoError(t, err)
	assert.Nil(t, config.ExecProvider)
}

func TestParseKubeconfigRefuses(t *testing.T) {
	type change = func(config *clientcmdapi.Config, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo)
	user := func(alter func(*clientcmdapi.AuthInfo)) change {
		return func(_ *clientcmdapi.Config, _ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { alter(u) }
	}
	cluster := func(alter func(*clientcmdapi.Cluster)) change {
		return func(_ *clientcmdapi.Config, c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { alter(c) }
	}
	whole := func(alter func(*clientcmdapi.Config)) change {
		return func(c *clientcmdapi.Config, _ *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { alter(c) }
	}
	for name, test := range map[string]struct {
		change change
		says   string
	}{
		"a command to log in": {change: user(func(u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1"}
		}), says: "runs a command"},
		"an auth provider": {change: user(func(u *clientcmdapi.AuthInfo) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"} }),
			says: "auth-provider"},
		"a token file": {change: user(func(u *clientcmdapi.AuthInfo) { u.TokenFile = "/etc/token" }), says: "points to files"},
		"a token file beside a token": {change: user(func(u *clientcmdapi.AuthInfo) {
			u.Token, u.TokenFile = "token", "/var/run/secrets/kubernetes.io/serviceaccount/token"
		}), says: "points to files"},
		"a client certificate file": {change: user(func(u *clientcmdapi.AuthInfo) { u.ClientCertificate = "/etc/cert" }),
			says: "points to files"},
		"a client key file": {change: user(func(u *clientcmdapi.AuthInfo) { u.ClientKey = "/etc/key" }), says: "points to files"},
		"an authority file": {change: cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthority = "/etc/ca" }),
			says: "points to files"},
		"a proxy":                   {change: cluster(func(c *clientcmdapi.Cluster) { c.ProxyURL = "http://proxy:3128" }), says: "proxy"},
		"no server":                 {change: cluster(func(c *clientcmdapi.Cluster) { c.Server = "" }), says: "server address"},
		"no current context":        {change: whole(func(c *clientcmdapi.Config) { c.CurrentContext = "" }), says: "current context"},
		"a context that is missing": {change: whole(func(c *clientcmdapi.Config) { c.CurrentContext = "other" }), says: "current context"},
		"a cluster that is missing": {change: whole(func(c *clientcmdapi.Config) { delete(c.Clusters, "west") }), says: "names no cluster"},
		"a user that is missing":    {change: whole(func(c *clientcmdapi.Config) { delete(c.AuthInfos, "home") }), says: "names no user"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseKubeconfig(kubeconfig(t, test.change))
			assert.ErrorContains(t, err, test.says)
		})
	}
	for name, data := range map[string]string{
		"text that is no kubeconfig": "hello",
		"broken YAML":                "apiVersion: v1\nkind: Config\nusers: {",
		"another kind of object":     "apiVersion: v1\nkind: Pod",
		"nothing":                    "",
		"binary data":                "\x00\xff\x1f",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseKubeconfig([]byte(data))
			assert.ErrorContains(t, err, "the kubeconfig")
		})
	}
}
