package peer

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// readSecret returns the peering's Secret, nil if there is none.
func (p *peering) readSecret(ctx context.Context, plan Plan) (*corev1.Secret, error) {
	secret, err := p.home.Client.CoreV1().Secrets(plan.Secret.Namespace).Get(ctx, plan.Secret.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && p.DryRun == "client":
		return nil, nil
	case err != nil:
		return nil, p.home.Explain("get Secret "+plan.Secret.Namespace+"/"+plan.Secret.Name, err)
	}
	return secret, nil
}

// checkSecret says whether a Secret of the peering's name was made for it.
func (p Plan) checkSecret(secret *corev1.Secret, remoteUID string) error {
	switch {
	case p.Remote != nil, secret.Annotations[keys.ClusterUID] == remoteUID:
		return nil
	case secret.Annotations[keys.ClusterUID] != "":
		return cli.Refuse("Secret %s/%s is left from a peering with another cluster: delete it, or give another --name", secret.Namespace,
			secret.Name)
	}
	return cli.Refuse("Secret %s/%s exists and was not made by peer: delete or rename it, or give another --name", secret.Namespace,
		secret.Name)
}

// credentialsIn returns the credentials in the Secret; credentials that cannot be read count as
// none and are replaced.
func (p Plan) credentialsIn(secret *corev1.Secret) credentials.Found {
	if secret == nil || len(secret.Data[p.key()]) == 0 {
		return credentials.Found{}
	}
	have, err := credentials.Read(secret.Data[p.key()])
	if err != nil {
		return credentials.Found{}
	}
	return have
}

// key returns the key of the Secret that holds the kubeconfig.
func (p Plan) key() string {
	if p.Secret.Key != "" {
		return p.Secret.Key
	}
	return "kubeconfig"
}

// server returns the address that home uses: that of the flags, else the one in the Secret, else
// that of the user's context.
func (p *peering) server(have credentials.Found) (cli.Server, error) {
	if p.RemoteServer == "" && have.Server.URL != "" {
		if p.ca != nil {
			have.Server.CA = p.ca
		}
		return have.Server, nil
	}
	return p.remote.Server(p.RemoteServer, p.ca)
}

// homeLogin is home's Secret, nil if there is none, what its kubeconfig contained, and the login
// that home uses from now on.
type homeLogin struct {
	secret *corev1.Secret
	found  credentials.Found
	login  credentials.Login
	kept   bool // login is the one that was found
}

// ensureLogin adds a login that the remote cluster accepts. A login that works is kept.
func (p *peering) ensureLogin(ctx context.Context, plan Plan, have homeLogin) (homeLogin, error) {
	var err error
	if !p.Renew && have.found.Kind() == plan.Auth {
		if have.kept, err = credentials.Accepted(ctx, p.remote, have.found, plan.User()); err != nil {
			return homeLogin{}, err
		}
	}
	if have.kept {
		have.login = have.found.Login
		return have, nil
	}
	have.login, have.secret, err = p.issue(ctx, plan, have.secret)
	return have, err
}

// issue gets new credentials of the planned kind. It returns the Secret as it is afterwards.
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

// token requests a token of home's service account in the remote cluster.
func (p *peering) token(ctx context.Context, plan Plan) (string, time.Time, error) {
	answer, err := p.remote.Client.CoreV1().ServiceAccounts(plan.Tenant()).CreateToken(ctx, keys.HomeAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(p.Duration.Seconds()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, p.remote.Explain(fmt.Sprintf("ask for a token of service account %s/%s", plan.Tenant(), keys.HomeAccount), err)
	}
	return answer.Status.Token, answer.Status.ExpirationTimestamp.Time, nil
}

// certificate gets a client certificate. The private key is made here and stored in home's Secret
// before its certificate is requested, so that a later run can continue with the same request. It
// returns the Secret as it is then.
func (p *peering) certificate(ctx context.Context, plan Plan, secret *corev1.Secret) (credentials.Login, *corev1.Secret, error) {
	fail := func(err error) (credentials.Login, *corev1.Secret, error) { return credentials.Login{}, nil, err }
	var key []byte
	if secret != nil {
		key = secret.Data[credentials.PendingKey]
	}
	if len(key) == 0 {
		made, err := credentials.NewKey()
		if err != nil {
			return fail(err)
		}
		key = made
		if secret, err = p.writeSecret(ctx, plan, secret, func(data map[string][]byte) { data[credentials.PendingKey] = key }); err != nil {
			return fail(err)
		}
	}
	want, err := signingRequest(plan, key, p.Options)
	if err != nil {
		return fail(err)
	}
	requests := p.remote.Client.CertificatesV1().CertificateSigningRequests()
	if _, err = requests.Create(ctx, want, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fail(p.remote.Explain("make CertificateSigningRequest "+want.Name, err))
	}
	if err := p.approve(ctx, want); err != nil {
		return fail(err)
	}
	var certificate []byte
	what := fmt.Sprintf("CertificateSigningRequest %q in the cluster of context %q to be signed", want.Name, p.remote.Context)
	err = p.Await(ctx, what, func(ctx context.Context) (string, bool, error) {
		request, err := requests.Get(ctx, want.Name, metav1.GetOptions{})
		if err != nil {
			return pollError(p.remote.Explain("get CertificateSigningRequest "+want.Name, err))
		}
		if err := p.checkRequest(request, want); err != nil {
			return "", false, err
		}
		certificate = request.Status.Certificate
		state, refused := signingState(request, p.remote.Context)
		if refused {
			return "", false, p.discard(ctx, plan, secret, state)
		}
		return state, len(certificate) > 0, nil
	})
	if err != nil {
		return fail(err)
	}
	p.Say("got a client certificate of user %q", plan.User())
	return credentials.Login{Certificate: certificate, PEM: key}, secret, nil
}

// approve approves a certificate request with the user's own rights, or says who must approve it.
func (p *peering) approve(ctx context.Context, want *certificatesv1.CertificateSigningRequest) error {
	name, requests := want.Name, p.remote.Client.CertificatesV1().CertificateSigningRequests()
	request, err := requests.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return p.remote.Explain("get CertificateSigningRequest "+name, err)
	}
	if err := p.checkRequest(request, want); err != nil {
		return err
	}
	if len(request.Status.Conditions) > 0 {
		return nil // decided already
	}
	lacking, err := p.remote.Lacking(ctx,
		cli.Right{Verb: "update", Group: "certificates.k8s.io", Resource: "certificatesigningrequests/approval"},
		cli.Right{Verb: "approve", Group: "certificates.k8s.io", Resource: "signers", Name: certificatesv1.KubeAPIServerClientSignerName})
	if err != nil {
		return err
	}
	if len(lacking) > 0 {
		p.Say("you may not approve certificates in the cluster of context %q; ask somebody who may to run: kubectl certificate approve %s",
			p.remote.Context, name)
		return nil
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "Peered", Message: "approved by whoever ran kubectl lodestone peer",
	})
	_, err = requests.UpdateApproval(ctx, name, request, metav1.UpdateOptions{})
	return p.remote.Explain("approve CertificateSigningRequest "+name, err)
}

// checkRequest returns an error if an existing request has the wanted name but asks for something
// else: anybody who may create requests could have taken the name.
func (p *peering) checkRequest(have, want *certificatesv1.CertificateSigningRequest) error {
	differs := difference(have.Spec, want.Spec)
	if differs == "" {
		return nil
	}
	return cli.Refuse("CertificateSigningRequest %q in the cluster of context %q was not written by peer (%s), so it is not used: nobody "+
		"must approve it; delete it there (kubectl --context %s delete csr %s), then run the same command again",
		want.Name, p.remote.Context, differs, p.remote.Context, want.Name)
}

// difference says in what two requests ask for different certificates, apart from their lifetime;
// empty if they ask for the same. It is pure.
func difference(have, want certificatesv1.CertificateSigningRequestSpec) string {
	if have.SignerName != want.SignerName {
		return fmt.Sprintf("it asks another signer, %q", have.SignerName)
	}
	if !sets.New(have.Usages...).Equal(sets.New(want.Usages...)) {
		return fmt.Sprintf("it asks for other usages, %q", have.Usages)
	}
	return credentials.Difference(have.Request, want.Request)
}

// signingState returns the state of a request, and a sentence if it will never be signed.
func signingState(request *certificatesv1.CertificateSigningRequest, remote string) (state string, refused bool) {
	state = fmt.Sprintf("it waits for approval: kubectl --context %s certificate approve %s", remote, request.Name)
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return fmt.Sprintf("CertificateSigningRequest %q was refused (%s: %s): run the same command again to ask anew, or use --auth token",
				request.Name, condition.Reason, condition.Message), true
		case certificatesv1.CertificateApproved:
			state = "it is approved but not signed; a cluster that signs no client certificates (EKS is one) never will: use --auth token there"
		}
	}
	return state, false
}

// discard removes the key of a refused request from the Secret and returns the sentence as an
// error.
func (p *peering) discard(ctx context.Context, plan Plan, secret *corev1.Secret, sentence string) error {
	if _, err := p.writeSecret(ctx, plan, secret, func(data map[string][]byte) { delete(data, credentials.PendingKey) }); err != nil {
		return err
	}
	return fmt.Errorf("%s", sentence)
}

// signingRequest returns the request for a certificate of a private key.
func signingRequest(plan Plan, key []byte, o Options) (*certificatesv1.CertificateSigningRequest, error) {
	request, suffix, err := credentials.Request(key, plan.User(), keys.HomesGroup)
	if err != nil {
		return nil, err
	}
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: "lodestone-home-" + plan.HomeID + "-" + suffix, Labels: managedLabels()},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			ExpirationSeconds: ptr.To(int32(o.Duration.Seconds())),
		},
	}, nil
}

// ensureSecret makes home's Secret hold a kubeconfig for server with the login.
func (p *peering) ensureSecret(ctx context.Context, plan Plan, have homeLogin, server cli.Server) error {
	if server.Loopback() {
		p.sayOnce(fmt.Sprintf("note: the address %s leads to the machine itself; if home's pods do not reach the remote API server there, give "+
			"--remote-server", server))
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

func sameServer(a, b cli.Server) bool {
	return a.URL == b.URL && a.Name == b.Name && bytes.Equal(a.CA, b.CA)
}

// writeSecret creates or updates the Secret and returns it; have is the Secret as it was read, nil
// for none.
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

// secret returns the Secret that is wanted at home; have may be nil.
func (p Plan) secret(have *corev1.Secret, remoteUID string, set func(data map[string][]byte)) *corev1.Secret {
	want := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Secret.Namespace, Name: p.Secret.Name, Labels: managedLabels()}}
	if have != nil {
		want = have.DeepCopy()
	}
	want.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[keys.ClusterUID] = remoteUID
	if want.Data == nil {
		want.Data = map[string][]byte{}
	}
	set(want.Data)
	return want
}
