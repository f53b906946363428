package peer

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// found returns what the Secret holds; what cannot be read counts as nothing and
// is replaced.
func (p Plan) found(secret *corev1.Secret) credentials.Found {
	if secret == nil || len(secret.Data[p.key()]) == 0 {
		return credentials.Found{}
	}
	have, err := credentials.Read(secret.Data[p.key()])
	if err != nil {
		return credentials.Found{}
	}
	return have
}

// holding is home's Secret, nil if there is none, what its kubeconfig held, and
// the login that home is to use from now on.
type holding struct {
	secret *corev1.Secret
	found  credentials.Found
	login  credentials.Login
	kept   bool // login is the one that was found
}

// ensureLogin adds a login that the remote cluster accepts. One that works is
// kept.
func (p *peering) ensureLogin(ctx context.Context, plan Plan, have holding) (holding, error) {
	var err error
	if !p.Renew && have.found.Kind() == plan.Auth {
		if have.kept, err = credentials.Accepted(ctx, p.remote, have.found, plan.User()); err != nil {
			return holding{}, err
		}
	}
	if have.kept {
		have.login = have.found.Login
		return have, nil
	}
	have.login, have.secret, err = p.issue(ctx, plan, have.secret)
	return have, err
}

// ensureSecret sees to it that home's Secret holds a kubeconfig for server with
// the login.
func (p *peering) ensureSecret(ctx context.Context, plan Plan, have holding, server access.Server) error {
	if server.Loopback() {
		p.sayOnce(fmt.Sprintf("note: the address %s leads to the machine itself; if home's pods do not reach the remote API server there, give --remote-server", server))
	}
	kubeconfig, err := credentials.Kubeconfig(plan.Name, "lodestone-home", server, have.login)
	if err != nil {
		return err
	}
	if have.kept && sameServer(have.found.Server, server) {
		kubeconfig = have.secret.Data[plan.key()]
	}
	_, err = p.writeSecret(ctx, plan, have.secret, func(data map[string][]byte) {
		data[plan.key()] = kubeconfig
		delete(data, credentials.PendingKey)
	})
	return err
}

// server returns the address that home is to use: that of the flags, else the one
// that it uses already, else that of the user's context.
func (p *peering) server(have credentials.Found) (access.Server, error) {
	if p.RemoteServer == "" && have.Server.URL != "" {
		if p.ca != nil {
			have.Server.CA = p.ca
		}
		return have.Server, nil
	}
	return p.remote.Server(p.RemoteServer, p.ca)
}

func sameServer(a, b access.Server) bool {
	return a.URL == b.URL && a.Name == b.Name && bytes.Equal(a.CA, b.CA)
}

// issue gets new credentials of the kind that is planned. It returns the Secret
// as it is afterwards.
func (p *peering) issue(ctx context.Context, plan Plan, secret *corev1.Secret) (credentials.Login, *corev1.Secret, error) {
	if plan.Auth == Certificate {
		return p.certificate(ctx, plan, secret)
	}
	token, expires, err := p.token(ctx, plan)
	if err != nil {
		return credentials.Login{}, nil, err
	}
	p.Say("got a token of service account %s/%s, valid until %s", plan.Tenant(), keys.HomeAccount, expires.UTC().Format(time.RFC3339))
	return credentials.Login{Token: token}, secret, nil
}

// token asks for a token of home's service account in the remote cluster.
func (p *peering) token(ctx context.Context, plan Plan) (string, time.Time, error) {
	answer, err := p.remote.Client.CoreV1().ServiceAccounts(plan.Tenant()).CreateToken(ctx, keys.HomeAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(p.Duration.Seconds()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, p.remote.Explain(fmt.Sprintf("ask for a token of service account %s/%s", plan.Tenant(), keys.HomeAccount), err)
	}
	return answer.Status.Token, answer.Status.ExpirationTimestamp.Time, nil
}

// writeSecret makes or changes the Secret and returns it; have is what was read,
// nil for nothing.
func (p *peering) writeSecret(ctx context.Context, plan Plan, have *corev1.Secret, set func(map[string][]byte)) (*corev1.Secret, error) {
	want, secrets := plan.secret(have, p.remoteUID, set), p.home.Client.CoreV1().Secrets(plan.Secret.Namespace)
	if have == nil {
		made, err := secrets.Create(ctx, want, metav1.CreateOptions{})
		if err == nil {
			p.Say("made Secret %s/%s", want.Namespace, want.Name)
		}
		return made, p.home.Explain("make Secret "+want.Namespace+"/"+want.Name, err)
	}
	if have.Annotations[keys.ClusterUID] == want.Annotations[keys.ClusterUID] && maps.EqualFunc(have.Data, want.Data, bytes.Equal) {
		return have, nil
	}
	changed, err := secrets.Update(ctx, want, metav1.UpdateOptions{})
	if err == nil {
		p.Say("changed Secret %s/%s", want.Namespace, want.Name)
	}
	return changed, p.home.Explain("change Secret "+want.Namespace+"/"+want.Name, err)
}
