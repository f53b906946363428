package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/extender/certificates"
)

// overTLS compares calls over TLS, with certificates on both sides, to calls over
// plain http.
func overTLS(ctx context.Context, b *bench, rounds int) ([]measure.Result, error) {
	plain, err := b.withFew(ctx)
	if err != nil {
		return nil, err
	}
	files, err := b.certificates()
	if err != nil {
		return nil, err
	}
	secured, err := b.startProgram(ctx, fewClaims,
		"--tls-cert-file="+files.server.certificate, "--tls-private-key-file="+files.server.key, "--client-ca-file="+files.authority)
	if err != nil {
		return nil, err
	}
	defer secured.Stop()
	t := target{
		URL:    strings.Replace(secured.target.URL, "http://", "https://", 1),
		CAFile: files.authority, CertFile: files.client.certificate, KeyFile: files.client.key,
	}
	var results []measure.Result
	for _, names := range []int{500, 5000} {
		securedCosts, plainCosts, err := b.sideBySide(
			side{secured.Pid(), newJob(t, names, 1)},
			side{plain.Pid(), newJob(plain.target, names, 1)}, rounds)
		if err != nil {
			return nil, err
		}
		ratio := measure.MedianRatio(securedCosts.sums(), plainCosts.sums())
		say("%d names, over TLS with client certificates to http: %s to %s, ratio %.2f", names, securedCosts, plainCosts, ratio)
		results = append(results, measure.Figure(fmt.Sprintf("filter call, %d names, 1 claim, over TLS with client certificates", names), ratio, "x http"))
	}
	return results, nil
}

// certificateFiles are what the two ends of a connection need.
type certificateFiles struct {
	authority      string
	server, client pairFiles
}

type pairFiles struct{ certificate, key string }

// certificates issues certificates for as long as a benchmark can run.
func (b *bench) certificates() (certificateFiles, error) {
	const life = time.Hour
	now := time.Now()
	files := certificateFiles{authority: filepath.Join(b.directory, "ca.crt")}
	authority, err := certificates.NewAuthority(now, life)
	if err != nil {
		return files, fmt.Errorf("make an authority: %w", err)
	}
	if err := os.WriteFile(files.authority, authority.CertificatePEM(), 0o600); err != nil {
		return files, fmt.Errorf("write the authority's certificate: %w", err)
	}
	for _, end := range []struct {
		files *pairFiles
		leaf  certificates.Leaf
	}{
		{&files.server, certificates.Leaf{Name: "lodestone-extender", Usage: x509.ExtKeyUsageServerAuth, Hosts: []string{"127.0.0.1"}, Life: life}},
		{&files.client, certificates.Leaf{Name: "kube-scheduler", Usage: x509.ExtKeyUsageClientAuth, Life: life}},
	} {
		pair, err := authority.Issue(now, end.leaf)
		if err != nil {
			return files, fmt.Errorf("issue a certificate for %s: %w", end.leaf.Name, err)
		}
		if *end.files, err = b.writePair(end.leaf.Name, pair); err != nil {
			return files, err
		}
	}
	return files, nil
}

func (b *bench) writePair(name string, pair *certificates.Pair) (pairFiles, error) {
	files := pairFiles{certificate: filepath.Join(b.directory, name+".crt"), key: filepath.Join(b.directory, name+".key")}
	key, err := pair.KeyPEM()
	if err != nil {
		return files, fmt.Errorf("encode the key of %s: %w", name, err)
	}
	for path, content := range map[string][]byte{files.certificate: pair.CertificatePEM(), files.key: key} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return files, fmt.Errorf("write the certificate of %s: %w", name, err)
		}
	}
	return files, nil
}
