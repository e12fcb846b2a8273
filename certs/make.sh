#!/usr/bin/env bash
# Makes the development certificates in this folder: a CA and one leaf for this machine.
# Existing files are replaced, so clients that trust the old ca.crt must take the new one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# 10 years for the CA; the leaf stays below 825 days, the most that Apple's clients accept.
readonly ca_days=3650 leaf_days=820

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The CA's key is in the repository, hence public. The name constraints keep the damage small should anybody
# put ca.crt into a trust store: it can vouch for loopback and for names reserved for tests, for nothing else.
cat >"$work/ca.cnf" <<'CNF'
[req]
prompt = no
distinguished_name = name
x509_extensions = ca
[name]
CN = tollgate development CA, not for production
[ca]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
nameConstraints = critical, @names
[names]
permitted;DNS.1 = localhost
permitted;DNS.2 = test
permitted;DNS.3 = example
permitted;DNS.4 = example.com
permitted;DNS.5 = internal
permitted;IP.1 = 127.0.0.0/255.0.0.0
permitted;IP.2 = 0:0:0:0:0:0:0:1/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
CNF

cat >"$work/leaf.cnf" <<'CNF'
[req]
prompt = no
distinguished_name = name
[name]
CN = localhost
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = DNS:localhost, IP:127.0.0.1, IP:::1
CNF

p256_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" 2>/dev/null; }

umask 077
p256_key "$work/ca.key"
p256_key "$work/dev.key"
openssl req -new -x509 -config "$work/ca.cnf" -key "$work/ca.key" -sha256 -days "$ca_days" -out "$work/ca.crt"
openssl req -new -config "$work/leaf.cnf" -key "$work/dev.key" -out "$work/dev.csr"
openssl x509 -req -in "$work/dev.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" \
    -set_serial "0x$(openssl rand -hex 16 | sed 's/^./4/')" -sha256 -days "$leaf_days" \
    -extfile "$work/leaf.cnf" -extensions leaf -out "$work/dev.crt" 2>/dev/null
openssl verify -x509_strict -CAfile "$work/ca.crt" -verify_hostname localhost "$work/dev.crt" >/dev/null
openssl verify -x509_strict -CAfile "$work/ca.crt" -verify_ip ::1 "$work/dev.crt" >/dev/null

chmod 644 "$work"/*.crt
mv "$work"/ca.{crt,key} "$work"/dev.{crt,key} .
openssl x509 -in dev.crt -noout -subject -enddate -ext subjectAltName
