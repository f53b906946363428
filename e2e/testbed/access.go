package testbed

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// tokenLifetime is longer than any test run or demo.
const tokenLifetime = 7 * 24 * time.Hour

// identity is a user that the API server knows by a token.
type identity struct {
	user, groups, token string
}

func newIdentity(user, groups string) identity {
	return identity{user: user, groups: groups, token: rand.Text()}
}

// tokenFile is the content of the API server's --token-auth-file.
func tokenFile(identities ...identity) []byte {
	var lines strings.Builder
	for _, id := range identities {
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", id.token, id.user, id.user, id.groups)
	}
	return []byte(lines.String())
}

// UserAgent is what clients of the test bed call themselves, whoever's token they have.
const UserAgent = "lodestone-testbed"

// config returns a client configuration for the bearer of token, with rates that
// never throttle a test.
func (c *Cluster) config(token string) *rest.Config {
	return &rest.Config{
		Host:            c.server(),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
		QPS:             1000,
		Burst:           2000,
		UserAgent:       UserAgent,
	}
}

// kubeconfig returns a self-contained kubeconfig for the bearer of token.
func (c *Cluster) kubeconfig(user, token string) ([]byte, error) {
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{c.Name(): {Server: c.server(), CertificateAuthorityData: c.ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{c.Name(): {Cluster: c.Name(), AuthInfo: user}},
		CurrentContext: c.Name(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode a kubeconfig for %s: %w", user, err)
	}
	return content, nil
}

// AdminConfig returns a new client configuration with all rights.
func (c *Cluster) AdminConfig() *rest.Config { return c.config(c.admin.token) }

// Client returns a client with all rights.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// UserConfig returns a client configuration that acts as the user name in the given
// groups and system:authenticated, with the rights that RBAC gives them.
func (c *Cluster) UserConfig(name string, groups ...string) *rest.Config {
	config := c.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: name,
		Groups:   append([]string{"system:authenticated"}, groups...),
	}
	return config
}

// ServiceAccountConfig returns a client configuration with a token of an existing
// service account.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	token, err := c.serviceAccountToken(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return c.config(token), nil
}

// ServiceAccountKubeconfig returns a self-contained kubeconfig with a token of an
// existing service account.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) ([]byte, error) {
	token, err := c.serviceAccountToken(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return c.kubeconfig(name, token)
}

func (c *Cluster) serviceAccountToken(ctx context.Context, namespace, name string) (string, error) {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds()))},
	}
	response, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of service account %s/%s: %w", namespace, name, err)
	}
	return response.Status.Token, nil
}
